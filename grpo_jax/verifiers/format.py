"""Whether a completion keeps to the think-then-answer format."""

from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.extract import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN, extract_answer


class FormatVerifier:
    """Reward 1 if the text is exactly ``<think>...</think><answer>...</answer>``, else 0.

    Each tag occurs once and in this order, the answer is not empty, and only white space stands
    before, between and after the two blocks.
    """

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Judges the form alone; ``correct`` says whether it is kept.

        Args:
            problem: Not looked at.
            completion: A truncated one never keeps the format.

        Returns:
            A verdict whose ``parsed`` is the answer block's text.
        """
        del problem
        answer, reason = extract_answer(completion)
        if answer is not None:
            reason = _fault(completion.text.strip())
        kept = not reason
        return Verdict(float(kept), correct=kept, parsed=answer, reason=reason or "format kept")


def _fault(text: str) -> str:
    if any(text.count(tag) != 1 for tag in (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)):
        return "not every tag exactly once"
    if not text.startswith(THINK_OPEN):
        return "text before the think block"
    between = text[text.index(THINK_CLOSE) + len(THINK_CLOSE) : text.index(ANSWER_OPEN)]
    return "text between the blocks" if between.strip() else ""
