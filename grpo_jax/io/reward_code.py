"""Which code gave a run's rewards: a run that goes on is told when a reward function's file has changed."""

from collections.abc import Mapping
from pathlib import Path

from grpo_jax.io.run_folder import read_json, write_json

FILE = "rewards.json"
"""What the run's own rewards said of themselves, beside ``config.json``."""

OWN = ("function", "environment")
"""Verifiers whose code is the user's; what they say of themselves ends in a digest of it."""


class RewardChanged(ValueError):  # noqa: N818
    """The rewards of the folder's run came from other code."""

    exit_status = 6


def own(facts: Mapping[str, str]) -> dict[str, str]:
    """What the user's own rewards say of themselves.

    Args:
        facts: What all verifiers say.

    Returns:
        The part that names a user's code, with its digest.
    """
    return {name: facts[name] for name in OWN if name in facts}


def require_same(folder: Path, facts: Mapping[str, str], *, accept: bool) -> None:
    """Compares the code of a run's rewards with that of its earlier starts, and records it.

    Args:
        folder: The run's.
        facts: What the verifiers say of themselves.
        accept: Whether the run goes on with other code.

    Raises:
        RewardChanged: if it differs and that is not accepted.
    """
    now = own(facts)
    path = folder / FILE
    before = read_json(path) if path.exists() else now
    changed = [
        f"  {name}: {before.get(name)} in the folder, {now.get(name)} now"
        for name in OWN
        if before.get(name) != now.get(name)
    ]
    if changed and not accept:
        lines = [f"{folder} was made with other code of its rewards:", *changed]
        remedy = (
            "Put the old file back to go on, choose another folder to start a new run, or add --changed_reward to go "
            "on with the new code: rewards from before and after do not compare then."
        )
        raise RewardChanged("\n".join([*lines, remedy]))
    if now and (changed or not path.exists()):
        write_json(path, now)
