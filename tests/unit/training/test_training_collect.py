"""Collecting and evaluating: order, errors of the judge, raw outcomes, and verification that overlaps generation."""

import concurrent.futures
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from grpo_jax.data.tokenizer import CharacterTokenizer
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import FinishedGroup, SamplingParams
from grpo_jax.training import collect as collect_lib
from grpo_jax.training import evaluation

TOKENIZER = CharacterTokenizer()
EOS = TOKENIZER.eos_ids[0]
PROBLEMS = [Problem(f"p{i}", f"{i}+{i}=", str(2 * i)) for i in range(3)]


class ScriptedEngine:
    """Yields written completions, last prompt first."""

    def __init__(self, texts: Sequence[Sequence[str]], log: list[str], max_tokens: int = 6) -> None:
        self.texts, self.log, self.max_tokens = texts, log, max_tokens

    def sync(self, params: Any, version: int) -> None:
        del params, version

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        G = sampling.completions_per_prompt
        for index in reversed(range(len(prompts))):
            self.log.append(f"generated {index}")
            token_GT = np.full((G, self.max_tokens), TOKENIZER.pad_id, np.int32)
            length_G = np.zeros(G, np.int32)
            finish_G = np.zeros(G, np.int32)
            for row, text in enumerate(self.texts[index]):
                ids = [*TOKENIZER.encode(text), EOS][: self.max_tokens]
                token_GT[row, : len(ids)] = ids
                length_G[row] = len(ids)
                finish_G[row] = FinishReason.STOP if ids[-1] == EOS else FinishReason.LENGTH
            zeros = np.zeros((G, self.max_tokens), np.float32)
            yield FinishedGroup(index, token_GT, zeros, zeros, length_G, finish_G, 7)


class Judge:
    """Right is what equals the answer; ``!`` breaks the judge."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.seen: list[Completion] = []

    def metrics(self) -> dict[str, float]:
        return {"verifier/workers": 1.0}

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        self.log.append(f"judged {problem.identifier}")
        self.seen.append(completion)
        future: concurrent.futures.Future[Verdict] = concurrent.futures.Future()
        correct = completion.text == problem.answer
        if completion.text == ".":
            future.set_result(Verdict(0.0, correct=False, parsed=None, reason="worker died", error=True))
        else:
            future.set_result(Verdict(float(correct), correct, completion.text, "", parts={"numeric": float(correct)}))
        return future


def collected(
    texts: Sequence[Sequence[str]], stop: tuple[str, ...] = ()
) -> tuple[collect_lib.Collected, list[str], Judge]:
    log: list[str] = []
    judge = Judge(log)
    sampling = SamplingParams(len(texts[0]), 6, stop=stop)
    batch = collect_lib.collect(
        ScriptedEngine(texts, log), judge, TOKENIZER, PROBLEMS, sampling=sampling, key=jax.random.key(0)
    )
    return batch, log, judge


TEXTS = [["0", "1"], ["2", "2"], [".", "5+5+5+5+5"]]


def test_groups_come_back_in_the_order_of_their_problems() -> None:
    batch, _, judge = collected(TEXTS)
    assert batch.text_BG == [["0", "1"], ["2", "2"], [".", "5+5+5+"]]
    np.testing.assert_array_equal(batch.correct_BG, [[True, False], [True, True], [False, False]])
    assert batch.rollout.policy_version == 7
    assert [c.finish for c in judge.seen[:2]] == [FinishReason.STOP, FinishReason.LENGTH]
    assert [c.length_tokens for c in judge.seen[:2]] == [2, 6]


def test_what_is_judged_ends_before_the_stop_text() -> None:
    batch, _, judge = collected([["0-1", "1"], ["2+/", "2/+"], [".", "5"]], stop=("/", "-"))
    assert batch.text_BG == [["0", "1"], ["2+", "2"], [".", "5"]]
    assert sorted(completion.text for completion in judge.seen) == [".", "0", "1", "2", "2+", "5"]
    assert [c.length_tokens for c in judge.seen if c.text in ("0", "1")] == [4, 2], "the stop counts as sampled"


def test_a_group_is_judged_before_the_next_is_generated() -> None:
    _, log, _ = collected(TEXTS)
    assert log == [
        "generated 2", "judged p2", "judged p2",
        "generated 1", "judged p1", "judged p1",
        "generated 0", "judged p0", "judged p0",
    ]  # fmt: skip


def test_errors_of_the_judge_are_no_wrong_answers() -> None:
    batch, _, _ = collected(TEXTS)
    np.testing.assert_array_equal(batch.valid_BG, [[True, True], [True, True], [False, True]])
    metrics = collect_lib.group_metrics(batch, ["numeric"])
    assert metrics["verifier/errors"] == 1
    assert metrics["pass_at_1"] == pytest.approx(3 / 5)
    assert metrics["rewards/numeric/mean"] == pytest.approx(3 / 5)
    assert metrics["solved_all"] == pytest.approx(1 / 3)
    assert metrics["solved_all"] + metrics["solved_some"] + metrics["solved_none"] == pytest.approx(1.0)
    assert metrics["solved_some"] == pytest.approx(1 / 3)
    assert metrics["verifier/error_share"] == pytest.approx(1 / 6)
    assert metrics["solved_none"] == pytest.approx(1 / 3)
    assert metrics["completions/clipped_ratio"] == pytest.approx(1 / 6)
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_batch_that_nothing_could_judge_has_finite_metrics() -> None:
    batch, _, _ = collected([[".", "."]] * 3)
    metrics = collect_lib.group_metrics(batch, ["numeric"])
    assert all(np.isfinite(value) for value in metrics.values())
    assert (metrics["verifier/errors"], metrics["solved_all"], metrics["solved_none"]) == (6, 0, 0)


@pytest.mark.parametrize(("n", "right", "k"), [(4, 1, 1), (4, 1, 2), (5, 2, 3), (3, 3, 2), (3, 0, 3)])
def test_pass_at_k_equals_enumeration(n: int, right: int, k: int) -> None:
    from itertools import combinations

    outcomes = [True] * right + [False] * (n - right)
    draws = [any(draw) for draw in combinations(outcomes, k)]
    got = evaluation.pass_at_k(np.array([outcomes]), np.ones((1, n), bool), k)
    assert got == pytest.approx(np.mean(draws))


def test_pass_at_k_leaves_out_what_could_not_be_judged() -> None:
    correct = np.array([[True, False, False], [True, True, True]])
    valid = np.array([[True, True, False], [False, False, True]])
    assert evaluation.pass_at_k(correct, valid, 1) == pytest.approx((0.5 + 1.0) / 2)
    assert evaluation.pass_at_k(correct, valid, 2) == pytest.approx(1.0)


def test_evaluation_reports_rates_lengths_and_samples() -> None:
    log: list[str] = []
    result = evaluation.evaluate(
        ScriptedEngine(TEXTS, log),
        Judge(log),
        TOKENIZER,
        PROBLEMS,
        sampling=SamplingParams(2, 6),
        key=jax.random.key(0),
    )
    assert result.metrics["eval/pass_at_1"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert result.metrics["eval/pass_at_k"] == pytest.approx(1.0)
    assert result.metrics["eval/errors"] == 1
    assert result.metrics["eval/problems"] == 3
    shown = evaluation.samples(result.collected, 2)
    assert [row["completion"] for row in shown] == ["0", "2"]
    assert shown[0]["correct"] is True
    assert (shown[0]["truncated"], shown[0]["error"]) == (False, False)
    outcomes = result.outcomes
    assert sum(outcomes["judged"]) == 5
    rates = [right / judged for right, judged in zip(outcomes["right"], outcomes["judged"], strict=True)]
    assert np.mean(rates) == pytest.approx(result.metrics["eval/pass_at_1"])
