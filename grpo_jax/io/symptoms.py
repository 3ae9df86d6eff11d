"""The known pathologies of a run as pure functions of its metrics.

Each looks at a history and says in plain words what is wrong, or nothing. Limits that depend on the task are in the
configuration's ``health``; the others are constants here.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from grpo_jax.config import HealthConfig
from grpo_jax.io.history import WINDOW_STEPS, History, Row, values_of

STILL_TO_LEARN = 0.9
"""Below this pass rate, groups without any spread are a loss; above, they are what success looks like."""

CLIPPED_TOKENS = 0.3
MISMATCH_NATS = 0.1
ENTROPY_LEFT = 0.05
"""Share of the first steps' entropy below which exploration has ended."""
EXPLORED_ENOUGH = 0.8
"""Pass rate from which a policy may well be sure of itself."""
SAME_PASS_RATE = 0.02
REWARD_GAIN = 0.1
EVALUATIONS_BACK = 3
LOST_SHARE, LOST_RATE = 0.5, 0.1
"""How much of the best held-out pass rate is lost, as a share of it and outright: a few problems may turn by chance."""


@dataclasses.dataclass(frozen=True)
class Symptom:
    """One pathology.

    Attributes:
        name: Stable, for metrics.
        title: For people.
        warns_when: Its condition, in words.
        remedy: What to change, with configuration keys.
        found: Says what is wrong, or None.
    """

    name: str
    title: str
    warns_when: str
    remedy: str
    found: Callable[[History, HealthConfig], str | None]


def hopeless_groups(history: History, limits: HealthConfig) -> str | None:
    """Groups without any right answer."""
    share = history.mean("solved_none", steps=5, at_least=1)
    if share is None or share <= limits.collapsed_groups:
        return None
    return f"{share:.0%} of the groups have no right answer, so there is next to nothing to learn from."


def collapsed_groups(history: History, limits: HealthConfig) -> str | None:
    """Groups whose completions all get one reward, while the problems are not solved."""
    active, pass_rate = history.mean("active_group_ratio"), history.mean("pass_at_1")
    if active is None or pass_rate is None or 1 - active <= limits.collapsed_groups or pass_rate >= STILL_TO_LEARN:
        return None
    return (
        f"{1 - active:.0%} of the groups got the same reward for all their completions in the last {WINDOW_STEPS} "
        f"steps and taught nothing, with a pass rate of {pass_rate:.0%}."
    )


def length_inflation(history: History, limits: HealthConfig) -> str | None:
    """Completions that have grown without being right more often."""
    length, pass_rate = history.mean("completions/mean_length"), history.mean("pass_at_1")
    if length is None or pass_rate is None:
        return None
    for start in range(0, len(history.train) - WINDOW_STEPS, WINDOW_STEPS):
        block = History(history.train[start : start + WINDOW_STEPS], ())
        before, then = block.mean("completions/mean_length"), block.mean("pass_at_1")
        if (
            before
            and then is not None
            and then >= pass_rate - SAME_PASS_RATE
            and length >= limits.length_growth * before
        ):
            first = history.train[start]["step"]
            return (
                f"completions have {length:.0f} tokens for a pass rate of {pass_rate:.0%}; around step "
                f"{first + WINDOW_STEPS // 2}, {before:.0f} were enough for {then:.0%}."
            )
    return None


def thinking_loops(history: History, limits: HealthConfig) -> str | None:
    """Completions that repeat themselves."""
    share = history.mean("completions/repeated_ngram_share")
    if share is None or share <= limits.repetition:
        return None
    return f"completions repeat themselves: {share:.0%} of their text stood before in the same completion."


def truncation(history: History, limits: HealthConfig) -> str | None:
    """Completions that are cut off."""
    share = history.mean("completions/clipped_ratio")
    if share is None or share <= limits.truncated_completions:
        return None
    return f"{share:.0%} of the completions were cut off at rollout.max_new_tokens in the last {WINDOW_STEPS} steps."


def kl_runaway(history: History, limits: HealthConfig) -> str | None:
    """A policy far from its reference."""
    kl = history.median("kl")
    if kl is None or kl <= limits.kl:
        return None
    return f"the policy has moved {kl:.2f} nats per token away from its reference."


def entropy_collapse(history: History, limits: HealthConfig) -> str | None:  # noqa: ARG001
    """A policy that is sure of itself before it is right."""
    entropy, pass_rate = history.median("entropy"), history.mean("pass_at_1")
    first = values_of(history.train[:WINDOW_STEPS], "entropy")
    if entropy is None or pass_rate is None or not first or pass_rate >= EXPLORED_ENOUGH:
        return None
    before = statistics.median(first)
    if entropy >= ENTROPY_LEFT * before:
        return None
    return (
        f"entropy fell from {before:.3g} to {entropy:.3g} nats per token while only {pass_rate:.0%} of the completions "
        "are right: the policy no longer tries anything else."
    )


def clip_fraction(history: History, limits: HealthConfig) -> str | None:  # noqa: ARG001
    """Updates so large that the clip takes hold of much of the batch."""
    share = history.mean("clip_ratio/region_mean")
    if share is None or share <= CLIPPED_TOKENS:
        return None
    return f"the clip took hold of {share:.0%} of the tokens in the last {WINDOW_STEPS} steps: updates are too large."


def sampler_mismatch(history: History, limits: HealthConfig) -> str | None:  # noqa: ARG001
    """A sampler and a trainer that do not give a token the same probability."""
    nats = history.mean("sampling/sampling_logp_difference/mean")
    if nats is None or nats <= MISMATCH_NATS:
        return None
    return f"the log-probabilities of sampler and trainer differ by {nats:.2f} nats on average."


def verifier_errors(history: History, limits: HealthConfig) -> str | None:
    """A judge that fails."""
    share = history.mean("verifier/error_share", at_least=1)
    if share is None or share <= limits.verifier_errors:
        return None
    faults = [
        row["verifier/commonest_fault"] for row in history.train[-WINDOW_STEPS:] if "verifier/commonest_fault" in row
    ]
    most_often = f"; most often: {statistics.mode(faults)}" if faults else ""
    return f"the judge failed on {share:.1%} of the completions, which take no part in training{most_often}."


def reward_without_accuracy(history: History, limits: HealthConfig) -> str | None:  # noqa: ARG001
    """A reward that rises while held-out problems are not solved more often."""
    judged = [row for row in history.validation if row.get("eval/pass_at_1") is not None]
    if len(judged) <= EVALUATIONS_BACK:
        return None
    then, now = judged[-1 - EVALUATIONS_BACK], judged[-1]
    before, after = (_reward_before(history.train, row["step"]) for row in (then, now))
    if before is None or after is None or now["eval/pass_at_1"] > then["eval/pass_at_1"]:
        return None
    if after - before <= REWARD_GAIN * max(abs(before), abs(after)):
        return None
    return (
        f"since step {then['step']} the reward rose from {before:.3f} to {after:.3f}, but held-out pass@1 "
        f"went from {then['eval/pass_at_1']:.3f} to {now['eval/pass_at_1']:.3f}."
    )


def accuracy_lost(history: History, limits: HealthConfig) -> str | None:  # noqa: ARG001
    """A policy that is right less often than it was."""
    judged = [row for row in history.validation if row.get("eval/pass_at_1") is not None]
    if not judged:
        return None
    best = max(judged, key=lambda row: row["eval/pass_at_1"])
    before, after = best["eval/pass_at_1"], judged[-1]["eval/pass_at_1"]
    if before - after < max(LOST_SHARE * before, LOST_RATE):
        return None
    return f"held-out pass@1 fell from {before:.3f} at step {best['step']} to {after:.3f}."


def _reward_before(train: Sequence[Row], step: int) -> float | None:
    values = values_of([row for row in train if step - WINDOW_STEPS < row["step"] <= step], "reward")
    return math.fsum(values) / len(values) if values else None


SYMPTOMS = (
    Symptom(
        "hopeless_groups",
        "No right answers",
        "more than health.collapsed_groups of the groups have no right answer, over 5 steps",
        "Use easier problems, more rollout.completions_per_prompt, a longer cold start (cold_start.steps), or, if this "
        "came during training, a lower optimizer.learning_rate.",
        hopeless_groups,
    ),
    Symptom(
        "collapsed_groups",
        "Collapsed groups",
        "more than health.collapsed_groups of the groups have no spread of rewards while the pass rate is below 90%",
        "Set curriculum.enabled=True or raise algorithm.dynamic_sampling_max_batches to draw problems that teach, or "
        "raise rollout.completions_per_prompt.",
        collapsed_groups,
    ),
    Symptom(
        "length_inflation",
        "Length inflation",
        "completions are health.length_growth times as long as when the pass rate was the same",
        "Raise algorithm.length_penalty with a smaller algorithm.length_budget_tokens, or set "
        "algorithm.overlong_max_tokens.",
        length_inflation,
    ),
    Symptom(
        "thinking_loops",
        "Thinking loops",
        "more than health.repetition of the completions' n-grams repeat earlier ones",
        "Set algorithm.repetition_weight, or raise algorithm.length_penalty with a smaller "
        "algorithm.length_budget_tokens.",
        thinking_loops,
    ),
    Symptom(
        "truncation",
        "Truncated completions",
        "more than health.truncated_completions of the completions reach the token limit",
        "Raise rollout.max_new_tokens, set algorithm.overlong_max_tokens to make long answers cost, or "
        "algorithm.mask_truncated=True to leave them out.",
        truncation,
    ),
    Symptom(
        "kl_runaway",
        "Runaway from the reference",
        "the KL to the reference is above health.kl nats per token",
        "Lower optimizer.learning_rate or raise algorithm.kl_beta (of PPO: ppo.kl_beta).",
        kl_runaway,
    ),
    Symptom(
        "entropy_collapse",
        "Entropy collapse",
        "entropy is below 5% of what it was at first while the pass rate is below 80%",
        "Raise algorithm.clip_epsilon_high or rollout.temperature, or lower optimizer.learning_rate.",
        entropy_collapse,
    ),
    Symptom(
        "clip_fraction",
        "Clipped updates",
        "the clip takes hold of more than 30% of the tokens",
        "Lower optimizer.learning_rate or algorithm.passes_per_batch.",
        clip_fraction,
    ),
    Symptom(
        "sampler_mismatch",
        "Sampler and trainer disagree",
        "their log-probabilities differ by more than 0.1 nats on average",
        "Set model.compute_dtype='float32' to see whether it is rounding, and algorithm.importance='token' to correct "
        "for it.",
        sampler_mismatch,
    ),
    Symptom(
        "verifier_errors",
        "Judge errors",
        "the judge fails on more than health.verifier_errors of the completions",
        "Try the verifier on such a completion with python -m grpo_jax.verify; raise verifier.deadline_seconds or "
        "verifier.worker_memory_mebibytes if it ran out of them.",
        verifier_errors,
    ),
    Symptom(
        "reward_without_accuracy",
        "Reward without accuracy",
        "over three evaluations the reward rises by a tenth and held-out pass@1 not at all",
        "Look at the completions in the report: the reward may pay for something else (verifier.weights), or the "
        "training problems are being learned by heart (fewer steps, more problems).",
        reward_without_accuracy,
    ),
    Symptom(
        "accuracy_lost",
        "Accuracy lost",
        "held-out pass@1 is at most half of its best, and a tenth lower",
        "Lower optimizer.learning_rate or algorithm.passes_per_batch, raise algorithm.kl_beta, and begin again from a "
        "copy of the folder with its later checkpoints taken out.",
        accuracy_lost,
    ),
)
"""All of them, gravest first."""
