import json

import pytest

from grpo_jax.io.reward_code import RewardChanged, own, require_same

FIRST = {"sandbox": "landlock", "function": "mine.py:f, sha256 01"}
SECOND = {"sandbox": "namespaces", "function": "mine.py:f, sha256 02"}


def test_only_a_users_own_code_counts():
    assert own(SECOND) == {"function": "mine.py:f, sha256 02"}
    assert own({"sandbox": "landlock"}) == {}


def test_the_same_code_goes_on_and_another_machine_may_differ(tmp_path):
    require_same(tmp_path, FIRST, accept=False)
    require_same(tmp_path, FIRST | {"sandbox": "namespaces"}, accept=False)
    assert json.loads((tmp_path / "rewards.json").read_text()) == own(FIRST)


def test_a_run_without_own_code_has_no_such_file(tmp_path):
    require_same(tmp_path, {"sandbox": "landlock"}, accept=False)
    assert not list(tmp_path.iterdir())


def test_other_code_is_refused_until_it_is_accepted(tmp_path):
    require_same(tmp_path, FIRST, accept=False)
    wanted = r"function: mine\.py:f, sha256 01 in the folder, mine\.py:f, sha256 02 now\n.*--changed_reward"
    for _ in range(2):
        with pytest.raises(RewardChanged, match=wanted):
            require_same(tmp_path, SECOND, accept=False)
    require_same(tmp_path, SECOND, accept=True)
    require_same(tmp_path, SECOND, accept=False)
    with pytest.raises(RewardChanged, match="sha256 02 in the folder, mine"):
        require_same(tmp_path, FIRST, accept=False)
