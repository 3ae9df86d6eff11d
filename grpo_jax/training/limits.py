"""When a run ends by itself, because nothing that it does counts any more."""

from collections.abc import Mapping
from typing import Any

from grpo_jax.training.loop import Run

UNJUDGED_STEPS = 3
"""Steps in a row without a single verdict after which a run ends."""


class NonFiniteTraining(RuntimeError):  # noqa: N818
    """Too many updates in a row had a gradient that was not finite."""

    exit_status = 4


class NothingJudged(RuntimeError):  # noqa: N818
    """The judge failed on every completion of several steps in a row."""

    exit_status = 2


def watch_updates(run: Run, row: Mapping[str, Any], max_nonfinite_steps: int) -> None:
    """Ends a run, its state saved, whose updates are refused one after the other.

    Args:
        run: The run.
        row: Metrics of the step that was taken.
        max_nonfinite_steps: Updates in a row.
    """
    progress = run.progress
    progress.nonfinite_in_a_row = progress.nonfinite_in_a_row + 1 if row["nonfinite_update"] else 0
    if progress.nonfinite_in_a_row >= max_nonfinite_steps:
        progress.nonfinite_in_a_row = 0
        run.stop(
            NonFiniteTraining(
                f"{max_nonfinite_steps} updates in a row had a gradient that was not finite; none of them was applied, "
                "and the state before them is saved. Lower optimizer.learning_rate or algorithm.kl_beta."
            )
        )


def watch_verdicts(run: Run, row: Mapping[str, Any]) -> None:
    """Ends a run, its state saved, whose judge fails on everything.

    Args:
        run: The run.
        row: Metrics of the step that was taken.
    """
    progress = run.progress
    progress.unjudged_in_a_row = progress.unjudged_in_a_row + 1 if row["verifier/error_share"] == 1 else 0
    if progress.unjudged_in_a_row >= UNJUDGED_STEPS:
        progress.unjudged_in_a_row = 0
        run.stop(
            NothingJudged(
                f"config.verifier: the judge failed on every completion of {UNJUDGED_STEPS} steps in a row, so nothing "
                f"is learned; most often: {row['verifier/commonest_fault']}. The state is saved. Mend the reward "
                "function or what it needs (python -m grpo_jax.verify tries one answer), then give the same command "
                "again, with --changed_reward where the function's file is another one now."
            )
        )
