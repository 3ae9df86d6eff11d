"""The verifier of mathematical answers: extraction, then judgement."""

import dataclasses
from typing import Any, Literal

from grpo_jax.boxes import boxed
from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers import extract
from grpo_jax.verifiers.mathematics.equivalence import Judgement, gold_fault, judge
from grpo_jax.verifiers.mathematics.hedges import answers_in_boxes, takes_back

MAX_DIFFERENT_ANSWERS = 4
"""Different candidates of one completion that are looked at; more are a shotgun."""


class MathematicsVerifier:
    """Reward 1 if the extracted answer equals the reference answer, else 0."""

    def __init__(self, config: MathematicsConfig) -> None:
        """Takes the options.

        Args:
            config: Extraction and conventions.
        """
        self._config = config

    def reference_fault(self, problem: Problem, /) -> str:
        """Says whether the reference answer has a reading.

        Args:
            problem: The problem.

        Returns:
            The fault, or an empty text.
        """
        fault = gold_fault(problem.answer, self._config)
        return f"reference answer {problem.answer[:50]!r} of problem {problem.identifier!r}: {fault}" if fault else ""

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Judges one completion.

        Args:
            problem: ``answer`` is the reference.
            completion: Judged by what ``config.extraction`` finds in it; a truncated one is never right.

        Returns:
            A verdict with ``error`` set if the reference cannot be read.
        """
        candidates, reason = extract_candidates(completion, self._config)
        if not candidates:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        judgement = judge_candidates(problem.answer, candidates, self._config)
        if judgement.error:
            reason = self.reference_fault(problem)
            return Verdict(0.0, correct=False, parsed=judgement.extracted, reason=reason, error=True)
        return Verdict(
            float(judgement.equal),
            correct=judgement.equal,
            parsed=judgement.extracted,
            reason=judgement.reason,
            flags=judgement.flags,
        )


def judge_candidates(gold: str, candidates: list[str], options: MathematicsConfig) -> Judgement:
    """Judges the answers of one completion, all of which must be right.

    Args:
        gold: The reference answer.
        candidates: Different answers, at least one; the last one is reported.
        options: The conventions that count as equal.

    Returns:
        The judgement of the last candidate, or of the first one that is wrong.
    """
    if len(candidates) > MAX_DIFFERENT_ANSWERS:
        judgement = judge(gold, candidates[-1], options)
        return dataclasses.replace(judgement, equal=False, reason="several different answers", flags=())
    judgements = [judge(gold, candidate, options) for candidate in candidates]
    if len(candidates) > 1 and not any(judgement.equal for judgement in judgements):
        # Every box may hold one of several solutions.
        together = judge(gold, ", ".join(candidates), options)
        if together.equal and together.gold.kind in ("list", "set"):
            return together
    if any(judgement.equal for judgement in judgements):
        for judgement in judgements:
            if not judgement.equal:
                return dataclasses.replace(judgement, reason="several different answers")
    return judgements[-1]


def explain(gold: str, answer: str, options: MathematicsConfig) -> dict[str, Any]:
    """Explains one judgement, for people and for JSON.

    Args:
        gold: The reference answer.
        answer: A completion, or an answer alone.
        options: Extraction and conventions.

    Returns:
        What was extracted, how both answers were read, and the verdict with its reason and flags.
    """
    candidates, reason = extract_candidates(Completion(answer, 0, FinishReason.STOP), options)
    judgement = judge_candidates(gold, candidates or [answer], options)
    return {
        "extracted": judgement.extracted,
        "extraction": reason if candidates else f"{reason}; the whole text is judged",
        "gold_text": judgement.gold.text,
        "gold_type": judgement.gold.kind,
        "gold_normal_form": judgement.gold.normal_form,
        "answer_text": judgement.answer.text,
        "answer_type": judgement.answer.kind,
        "answer_normal_form": judgement.answer.normal_form,
        "equal": judgement.equal,
        "error": judgement.error,
        "reason": judgement.reason,
        "flags": list(judgement.flags),
    }


def extract_candidates(completion: Completion, options: MathematicsConfig) -> tuple[list[str], str]:
    """Finds the answer of a completion as ``options.extraction`` says.

    Args:
        completion: The completion; a truncated one has no answer.
        options: Where to look.

    Returns:
        The different answers in order (usually one), and the reason if there is none.
    """
    if completion.finish == FinishReason.LENGTH:
        return [], "truncated"
    if options.extraction == "whole":
        return [completion.text], "found"
    shown, _ = extract.after_thinking(completion.text)
    if options.extraction == "boxed":
        return _boxes(shown, options, context="none")
    if options.extraction == "answer_block" or extract.ANSWER_OPEN in shown:
        return _block(completion, shown, options)
    candidates, reason = _boxes(shown, options, context="sentence")
    if candidates or reason != "no box":
        return candidates, reason
    lines = extract.answer_lines(shown)
    if lines:
        if takes_back(shown, lines):
            return [], "hedged answer"
        return _different([line.content for line in lines], options), "found"
    # Nothing but the answer itself.
    only = shown.strip()
    return ([only], "found") if len(only.splitlines()) == 1 else ([], "no answer line")


def _block(completion: Completion, shown: str, options: MathematicsConfig) -> tuple[list[str], str]:
    answer, reason = extract.extract_answer(completion)
    if answer is None and options.unclosed_answer and extract.ANSWER_CLOSE not in shown:
        _, opened, rest = shown.partition(extract.ANSWER_OPEN)
        answer = rest.strip() if opened and extract.ANSWER_OPEN not in rest else None
    if not answer:
        return [], reason
    candidates, box_reason = _boxes(answer, options, context="text")
    if box_reason == "no box":
        return [answer], "found"
    return candidates, box_reason


def _boxes(
    text: str, options: MathematicsConfig, *, context: Literal["none", "sentence", "text"]
) -> tuple[list[str], str]:
    """The answers in boxes; ``context`` is what around a box may say that it is not the answer."""
    boxes = boxed(text)
    if boxes is None:
        return [], "unclosed box"
    if not boxes:
        return [], "no box"
    if context == "none":
        return _different([box.content for box in boxes], options), "found"
    found = answers_in_boxes(text, boxes, by_sentence=context == "sentence", last_only=options.last_box)
    return found.answers, found.reason


def _different(answers: list[str], options: MathematicsConfig) -> list[str]:
    if options.last_box:
        return answers[-1:]
    return list(dict.fromkeys(answers))
