"""A conversation with a model on the terminal, line by line."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from grpo_jax.config import ConfigError

Message = dict[str, str]


def converse(lines: Iterable[str], system: Sequence[Message], answer: Callable[[list[Message], int], str]) -> None:
    """Has every line answered, with all that was said before it.

    ``/clear`` forgets what was said; ``/exit`` or the input's end ends the conversation. A line that cannot be answered
    is taken back, and the reason goes to standard error.

    Args:
        lines: What the user says.
        system: What a conversation begins with.
        answer: Shows the answer to messages as it comes, and returns it; gets the number of the answer, too. Raises
            ConfigError where there is none.
    """
    messages, turn, coming = list(system), 0, iter(lines)
    while (line := _next_line(coming, prompting=sys.stdin.isatty())) is not None:
        if line == "/clear":
            messages = list(system)
            continue
        try:
            text = answer([*messages, said(line)], turn)
        except ConfigError as error:
            print(f"{error} /clear forgets what was said.", file=sys.stderr)
            continue
        print(flush=True)
        messages += [said(line), {"role": "assistant", "content": text}]
        turn += 1


def said(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def _next_line(lines: Iterator[str], prompting: bool) -> str | None:
    """What is said next, or None where the conversation ends."""
    while True:
        if prompting:
            print("> ", end="", file=sys.stderr, flush=True)
        line = next(lines, "")
        if not line or line.strip() == "/exit":
            return None
        if line.strip():
            return line.strip()
