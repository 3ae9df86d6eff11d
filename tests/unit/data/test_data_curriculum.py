"""The curriculum: what is left out, that it pays, that nothing is lost for ever, and that it resumes bit for bit."""

import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from grpo_jax.config import ConfigError, CurriculumConfig
from grpo_jax.data.curriculum import LEFT_OUT_PER_PROBLEM, Curriculum, CurriculumLoader
from grpo_jax.data.loader import PromptLoader
from grpo_jax.records import Problem

PROBLEMS = [Problem(f"problem {i}", f"{i}?", str(i)) for i in range(60)]
GROUP = 8
BATCH = 16


def visit(curriculum: Curriculum, *right_counts: int, problem: Problem = PROBLEMS[0], step: int = 0) -> None:
    """Records visits of one problem with so many right completions each."""
    for right in right_counts:
        correct_BG = np.arange(GROUP)[None] < right
        curriculum.record([problem], correct_BG, np.ones_like(correct_BG), step=step)


def after(*right_counts: int, **settings: object) -> Curriculum:
    """A curriculum that never readmits by age, after visits of the first problem."""
    curriculum = Curriculum(CurriculumConfig(**{"readmit_after_steps": 0} | settings))  # pyright: ignore[reportArgumentType]
    visit(curriculum, *right_counts)
    return curriculum


def counts(curriculum: Curriculum | CurriculumLoader) -> tuple[float, ...]:
    metrics = curriculum.metrics()
    return tuple(metrics[f"curriculum/{name}"] for name in ("seen", "active", "solved", "hopeless"))


# ---- decisions ----


@pytest.mark.parametrize(
    ("right_counts", "probability"),
    [
        ((), 1),
        ((0,), 1),
        ((8,), 1),
        ((0, 0), 0.05),
        ((8, 8), 0.05),
        ((0, 8), 1),
        ((8, 0), 1),
        ((7, 8), 1),  # 0.7 of a wrong completion is left
        ((7, 8, 8), 0.05),  # 0.49
        ((4, 8, 8, 8, 8, 8), 1),  # 0.67
        ((4, 8, 8, 8, 8, 8, 8), 0.05),  # 0.47
        ((0, 0, 0, 0, 1), 1),  # one right completion ends hopelessness at once
        ((8, 8, 8, 8, 7), 1),
    ],
)
def test_what_is_always_or_never_solved_is_left_out(right_counts: tuple[int, ...], probability: float) -> None:
    assert after(*right_counts).admission_probability(PROBLEMS[0]) == probability


def test_visits_needed_before_a_problem_is_left_out() -> None:
    probabilities = [after(*[0] * visits, min_visits=4).admission_probability(PROBLEMS[0]) for visits in range(6)]
    assert probabilities == [1, 1, 1, 1, 0.05, 0.05]


def test_without_memory_the_last_visit_decides() -> None:
    assert after(4, 8, decay=0.0).admission_probability(PROBLEMS[0]) == 0.05
    assert after(8, 4, decay=0.0).admission_probability(PROBLEMS[0]) == 1


def test_variance_weighting_is_relative_to_even_odds_and_has_a_floor() -> None:
    def probability(*right_counts: int) -> float:
        return after(*right_counts, weighting="variance", decay=0.5).admission_probability(PROBLEMS[0])

    assert probability(4, 4) == 1
    assert probability(2, 2) == pytest.approx(4 * 0.25 * 0.75)
    # Decayed: 0.5 * 4 + 2 = 4 right and 0.5 * 4 + 6 = 8 wrong.
    assert probability(4, 2) == pytest.approx(4 * (1 / 3) * (2 / 3))
    assert probability(1) == 1, "too few visits"
    assert probability(0, 0) == 0.05
    high_floor = after(1, 1, weighting="variance", readmit_probability=0.5)
    assert high_floor.admission_probability(PROBLEMS[0]) == 0.5


def test_an_old_history_is_no_reason_to_leave_out() -> None:
    curriculum = after(readmit_after_steps=3, readmit_probability=0.0)
    visit(curriculum, 0, 0, step=7)
    probabilities = []
    for step in range(7, 12):
        visit(curriculum, 4, 4, problem=PROBLEMS[1], step=step)
        probabilities.append(curriculum.admission_probability(PROBLEMS[0]))
    assert probabilities == [0, 0, 0, 1, 1]
    visit(curriculum, 0, step=11)
    assert curriculum.admission_probability(PROBLEMS[0]) == 0, "hopeless still, and just seen again"


def test_failures_of_the_judge_are_neither_right_nor_wrong() -> None:
    curriculum = after()
    correct_BG = np.array([[True, False, True, False], [False, False, False, False]])
    valid_BG = np.array([[True, False, True, False], [False, False, False, False]])
    for _ in range(2):
        curriculum.record(PROBLEMS[:2], correct_BG, valid_BG, step=1)
    assert counts(curriculum) == (1, 0, 1, 0), "solved by its two judged completions; the other was never visited"
    assert curriculum.admission_probability(PROBLEMS[1]) == 1


def test_counts_follow_every_change() -> None:
    curriculum = after(0, 0)
    assert counts(curriculum) == (1, 0, 0, 1)
    visit(curriculum, 8, 8, problem=PROBLEMS[1])
    visit(curriculum, 4, 4, problem=PROBLEMS[2])
    visit(curriculum, 8, problem=PROBLEMS[3])
    assert counts(curriculum) == (4, 2, 1, 1)
    visit(curriculum, 1)
    visit(curriculum, 0, problem=PROBLEMS[1])
    assert counts(curriculum) == (4, 4, 0, 0)
    visit(curriculum, *[0] * 10, problem=PROBLEMS[1])
    assert counts(curriculum) == (4, 3, 0, 1)


def test_outcomes_belong_to_their_problems() -> None:
    with pytest.raises(ValueError, match="shorter"):
        after().record(PROBLEMS[:3], np.ones((2, 4), bool), np.ones((2, 4), bool), step=1)


# ---- the stream ----


def record(loader: CurriculumLoader, problems: list[Problem], solved: Callable[[Problem], bool]) -> None:
    """Records groups that are all right or all wrong."""
    correct_BG = np.repeat([[solved(problem)] for problem in problems], GROUP, axis=1)
    loader.record(problems, correct_BG, np.ones_like(correct_BG), step=0)


def number(problem: Problem) -> int:
    return int(problem.answer)


def test_without_history_the_batches_are_those_of_the_plain_loader() -> None:
    plain, loader = PromptLoader(PROBLEMS, 7, 3), CurriculumLoader(PROBLEMS, 7, 3, CurriculumConfig())
    assert [next(loader) for _ in range(20)] == [next(plain) for _ in range(20)]
    assert loader.metrics() == {
        f"curriculum/{name}": 0 for name in ("seen", "active", "solved", "hopeless", "left_out", "forced")
    }


def test_a_batch_goes_on_where_problems_are_left_out_and_keeps_the_order() -> None:
    config = CurriculumConfig(readmit_probability=0.0)
    plain, loader = PromptLoader(PROBLEMS, 1, 3), CurriculumLoader(PROBLEMS, 10, 3, config)
    for _ in range(2):
        record(loader, PROBLEMS[:40], lambda problem: number(problem) < 20)
    assert counts(loader) == (40, 0, 20, 20)
    for _ in range(6):
        expected, passed = [], 0
        while len(expected) < 10:
            (problem,) = next(plain)
            expected += [problem] if number(problem) >= 40 else []
            passed += number(problem) < 40
        assert next(loader) == expected
        assert loader.metrics()["curriculum/left_out"] == passed


def test_left_out_problems_come_back_as_often_as_asked_for() -> None:
    config = CurriculumConfig(readmit_probability=0.2, readmit_after_steps=0)
    loader = CurriculumLoader(PROBLEMS, 10, 0, config)
    for _ in range(2):
        record(loader, PROBLEMS[:30], lambda problem: True)
    drawn = Counter(number(problem) < 30 for _ in range(100) for problem in next(loader))
    # One solved problem for every five others; the standard deviation of the share is 0.012.
    assert drawn[True] / sum(drawn.values()) == pytest.approx(1 / 6, abs=0.04)


def test_a_batch_is_full_even_where_everything_is_left_out() -> None:
    config = CurriculumConfig(readmit_probability=0.0, readmit_after_steps=1000)
    loader = CurriculumLoader(PROBLEMS, 5, 0, config)
    for _ in range(2):
        record(loader, PROBLEMS, lambda problem: False)
    assert len(next(loader)) == 5
    assert loader.metrics()["curriculum/left_out"] == 5 * LEFT_OUT_PER_PROBLEM
    assert loader.metrics()["curriculum/forced"] == 5
    record(loader, PROBLEMS[:30], lambda problem: True)
    assert len(next(loader)) == 5
    assert loader.metrics()["curriculum/forced"] == 0


# ---- learning ----


class Policy:
    """A simulated policy: a problem's pass rate rises when an active group of it is trained on, and only then."""

    def __init__(self, pass_rates: dict[str, float], seed: int = 0):
        self.pass_rates = dict(pass_rates)
        self._generator = np.random.default_rng(seed)
        self._steps = 0

    def step(self, loader: CurriculumLoader | PromptLoader) -> float:
        """Samples a batch and learns from it; returns the share of active groups."""
        problems = next(loader)
        chance_B1 = np.array([[self.pass_rates[problem.identifier]] for problem in problems])
        correct_BG = self._generator.random((len(problems), GROUP)) < chance_B1
        active_B = correct_BG.any(axis=1) & ~correct_BG.all(axis=1)
        for problem, active in zip(problems, active_B, strict=True):
            if active:
                learned = self.pass_rates[problem.identifier] + 0.08
                self.pass_rates[problem.identifier] = 1.0 if learned > 0.9 else learned
        self._steps += 1
        if isinstance(loader, CurriculumLoader):
            loader.record(problems, correct_BG, np.ones_like(correct_BG), step=self._steps)
        return float(active_B.mean())

    def solved(self, problems: list[Problem]) -> float:
        return float(np.mean([self.pass_rates[problem.identifier] == 1 for problem in problems]))


MIX = [Problem(f"mix {i}", str(i), str(i)) for i in range(200)]
EASY, HARD, LEARNABLE = MIX[:90], MIX[90:160], MIX[160:]


def rates(problems: list[Problem], rate: float) -> dict[str, float]:
    return dict.fromkeys([problem.identifier for problem in problems], rate)


RATES = rates(EASY, 1.0) | rates(HARD, 0.0) | rates(LEARNABLE, 0.2)


@pytest.mark.parametrize("weighting", ["uniform", "variance"])
@pytest.mark.parametrize("seed", range(2))
def test_the_active_share_rises_and_learning_is_faster(weighting: str, seed: int) -> None:
    config = CurriculumConfig(weighting=weighting)  # pyright: ignore[reportArgumentType]

    def run(loader: CurriculumLoader | PromptLoader) -> tuple[list[float], float]:
        policy = Policy(RATES, seed)
        return [policy.step(loader) for _ in range(50)], policy.solved(LEARNABLE)

    plain_active, plain_solved = run(PromptLoader(MIX, BATCH, seed))
    loader = CurriculumLoader(MIX, BATCH, seed, config)
    active, solved = run(loader)
    # Two epochs, of 12.5 steps each, pass before anything can be left out; then the plain loader has 0.2 of its groups.
    assert np.mean(active[25:40]) > 2 * np.mean(plain_active[25:40])
    assert np.mean(active[25:40]) > np.mean(active[:25]) + 0.2
    assert solved > plain_solved + 0.3
    metrics = loader.metrics()
    assert metrics["curriculum/seen"] == len(MIX)
    # A few learnable problems fail twice in a row by chance.
    assert len(HARD) <= metrics["curriculum/hopeless"] <= len(HARD) + 5
    assert metrics["curriculum/solved"] >= len(EASY)
    assert metrics["curriculum/left_out"] > BATCH


@pytest.mark.parametrize(
    "config",
    [
        CurriculumConfig(readmit_after_steps=0),
        CurriculumConfig(readmit_after_steps=30, readmit_probability=0.0),
        CurriculumConfig(readmit_after_steps=0, weighting="variance"),
    ],
    ids=["by chance", "by age", "by variance"],
)
def test_what_becomes_solvable_or_is_forgotten_comes_back_and_is_learned(config: CurriculumConfig) -> None:
    easy, hard, learnable = EASY[:30], HARD[:30], LEARNABLE[:20]
    problems = easy + hard + learnable
    policy, loader = Policy(RATES), CurriculumLoader(problems, BATCH, 0, config)
    for _ in range(15):
        policy.step(loader)
    changed = hard + easy[:15]
    assert {loader._curriculum.admission_probability(problem) for problem in changed} == {config.readmit_probability}
    policy.pass_rates |= rates(changed, 0.3)
    steps = 0
    while policy.solved(problems) < 1:
        policy.step(loader)
        steps += 1
        assert steps < 120, "some problems are not learned"
        assert loader.metrics()["curriculum/forced"] < BATCH / 2, "they came by force"


# ---- state ----


def pattern(problem: Problem) -> bool:
    return number(problem) % 3 > 0


@pytest.mark.parametrize("weighting", ["uniform", "variance"])
def test_a_resumed_stream_is_the_same_bit_for_bit_after_json(weighting: str) -> None:
    config = CurriculumConfig(weighting=weighting, readmit_after_steps=9)  # pyright: ignore[reportArgumentType]
    policy_rates = {problem.identifier: (number(problem) % 5) / 4 for problem in PROBLEMS}

    def go_on(loader: CurriculumLoader, first: int, last: int) -> list[object]:
        seen: list[object] = []
        for step in range(first, last):
            problems = next(loader)
            chance_B1 = np.array([[policy_rates[problem.identifier]] for problem in problems])
            correct_BG = np.random.default_rng(step).random((len(problems), GROUP)) < chance_B1
            valid_BG = np.random.default_rng(step + 99).random(correct_BG.shape) < 0.9
            loader.record(problems, correct_BG, valid_BG, step=step)
            seen += [[problem.identifier for problem in problems], loader.metrics()]
        return seen

    loader = CurriculumLoader(PROBLEMS, 11, 5, config)
    go_on(loader, 0, 40)
    state = json.loads(json.dumps(loader.get_state()))
    assert state == loader.get_state()
    expected = go_on(loader, 40, 80)
    resumed = CurriculumLoader(PROBLEMS, 11, 5, config)
    go_on(resumed, 0, 7)
    resumed.set_state(state)
    assert resumed.get_state() == state
    assert go_on(resumed, 40, 80) == expected
    assert resumed.get_state() == loader.get_state()
    assert any(metrics["curriculum/left_out"] > 0 for metrics in expected[1::2])  # pyright: ignore[reportIndexIssue]


def test_the_chance_in_readmission_depends_on_the_seed() -> None:
    taken = set()
    for seed in range(4):
        loader = CurriculumLoader(PROBLEMS[:1], 1, seed, CurriculumConfig(readmit_probability=0.3))
        for _ in range(2):
            record(loader, PROBLEMS[:1], pattern)
        taken.add(tuple(next(loader) and loader.metrics()["curriculum/left_out"] for _ in range(30)))
    assert len(taken) == 4


def test_the_state_of_many_problems_is_small() -> None:
    curriculum = after()
    generator = np.random.default_rng(0)
    problems = [Problem(f"addition/{i * 7919 % 100_000}+{i}", "", "") for i in range(5_000)]
    for _ in range(3):
        correct_BG = generator.random((len(problems), GROUP)) < generator.random((len(problems), 1))
        curriculum.record(problems, correct_BG, np.ones_like(correct_BG), step=1)
    assert len(json.dumps(curriculum.get_state())) < 25 * len(problems)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (CurriculumLoader(PROBLEMS[:9], 4, 7, CurriculumConfig()).get_state(), r"problems = 9, this run has 60"),
        (CurriculumLoader(PROBLEMS, 5, 7, CurriculumConfig()).get_state(), r"batch_size = 5, this run has 4"),
        (CurriculumLoader(PROBLEMS, 4, 8, CurriculumConfig()).get_state(), r"seed = 8, this run has 7.*start a new"),
        (
            CurriculumLoader(PROBLEMS, 4, 7, CurriculumConfig(decay=0.5)).get_state(),
            r"curriculum = .*'decay': 0\.5.*this run has .*'decay': 0\.7",
        ),
        (PromptLoader(PROBLEMS, 4, 7).get_state(), r"curriculum = None, this run has .*Restore the old data"),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(state: dict, message: str) -> None:
    loader = CurriculumLoader(PROBLEMS, 4, 7, CurriculumConfig())
    before = loader.get_state()
    with pytest.raises(ValueError, match=message):
        loader.set_state(state)
    assert loader.get_state() == before


def test_the_plain_loader_refuses_a_state_with_a_history() -> None:
    with pytest.raises(ValueError, match=r"problems = None, this run has 60"):
        PromptLoader(PROBLEMS, 4, 7).set_state(CurriculumLoader(PROBLEMS, 4, 7, CurriculumConfig()).get_state())


# ---- configuration ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1.0}, r"config\.curriculum\.decay: got 1\.0, wanted less than 1\. Old visits would never"),
        ({"decay": -0.1}, r"config\.curriculum\.decay: got -0\.1, wanted a share"),
        ({"min_visits": 0}, r"config\.curriculum\.min_visits: got 0, wanted 1 or more"),
        ({"readmit_probability": 1.5}, r"config\.curriculum\.readmit_probability: got 1\.5, wanted a share"),
        ({"readmit_after_steps": -1}, r"config\.curriculum\.readmit_after_steps: got -1, wanted 0 or more"),
        (
            {"readmit_probability": 0.0, "readmit_after_steps": 0},
            r"readmit_probability: got 0\.0, wanted a positive share, since .* What is left out would never come back",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CurriculumConfig(**settings).validate("curriculum")


def test_either_way_back_is_enough() -> None:
    CurriculumConfig(readmit_probability=0.0, readmit_after_steps=1).validate("curriculum")
    CurriculumConfig(readmit_probability=0.01, readmit_after_steps=0).validate("curriculum")
