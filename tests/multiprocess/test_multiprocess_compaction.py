"""Two processes with two devices each: skipping rows leaves the update as it is, and nobody waits for ever.

At most 11 of the 16 rows take part and are moved to the front, so the last device holds none; where groups of equal
rewards are inactive it is 7, and none of the second process's devices holds any.
"""

import pytest

from tests.contract import losses
from tests.contract.updates import ACROSS_ROWS
from tests.multiprocess import processes

OTHERS = [name for name in losses.NAMES if name not in ACROSS_ROWS]


@pytest.mark.parametrize("names", [ACROSS_ROWS, pytest.param(OTHERS, marks=pytest.mark.slow)])
def test_updates_equal_one_device_whatever_a_process_holds(names):
    first, second = processes.run("tests.multiprocess.compaction", *names, limit_seconds=600)
    assert first == second
    assert first.keys() == {*names, "nothing"}
    assert min(first[name]["rows"] for name in names) == 7
    assert all(first[name]["grad_norm"] > 0 for name in names)
    assert first["nothing"] == {"micro_batches": 0, "skipped_update": 1}
