import pytest

from grpo_jax.config import ConfigError
from grpo_jax.training import faults


@pytest.mark.parametrize("fault", ["", "rollout:3:kill", "cold_start:1:full", "update:2:hang:1"])
def test_a_fault_that_can_happen_is_none_of_the_users_mistakes(fault, monkeypatch):
    monkeypatch.setenv(faults.VARIABLE, fault)
    faults.check()


@pytest.mark.parametrize("fault", ["foo", "rollout:x:kill", "rollout:3:explode", "rollout:3", "rollout:3:kill:one"])
def test_a_fault_that_could_never_happen_is_refused(fault, monkeypatch):
    monkeypatch.setenv(faults.VARIABLE, fault)
    with pytest.raises(ConfigError, match=f"GRPO_JAX_FAULT: got '{fault}', wanted PHASE:STEP:ACTION"):
        faults.check()
