"""Tries verifiers on labelled cases, on one answer, or on completions of your own.

python -m grpo_jax.verify --kind math|code|proof --cases FILE.jsonl [--json OUT.json]
python -m grpo_jax.verify --kind math --gold TEXT --answer TEXT
python -m grpo_jax.verify --completions FILE.jsonl [--config FILE.py] [--json OUT.json]

  --cases FILE          judges every labelled case and prints how often the verifier agrees. A row has an id and, for
                        math, gold, answer and equal; for code, tests, completion and expect (pass or fail); for proof,
                        prover, statement, theorem, candidate and expect. Texts are taken as they are; with "form":
                        "completion" the answer or program is looked for in them, as in training
  --gold, --answer      explains one verdict: what was extracted, which types, why
  --completions FILE    what the rewards of a configuration accept among your own completions: rows with answer,
                        completion and the columns that the verifiers read. Finds rewards that can be hacked before a
                        run does
  --json OUT            writes everything as JSON; "-" writes it to standard output and nothing else
  --workers N           processes that judge (default: all cores)
  --config FILE.py      a run's configuration, whose verifier section holds the options
  --config.verifier.math.percent=VALUE   changes one of them; configs/base.py lists all

Exit status: 0 done, whatever the verdicts say; 2 bad command line or file, or a verifier that cannot work here.
"""

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from grpo_jax import cli
from grpo_jax.config import ConfigError, VerifierConfig
from grpo_jax.verifiers import audit, cases
from grpo_jax.verifiers.mathematics.verifier import explain

KINDS = ("math", "code", "proof")
SHOWN_DISAGREEMENTS = 20


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    command = cli.parse(sys.argv, _flags(), config_required=False)
    given = command.flags
    config = command.config.verifier
    if given["workers"].present or not command.name:
        config = dataclasses.replace(config, workers=given.workers)
    modes = [name for name in ("cases", "gold", "completions") if given[name].value is not None]
    if len(modes) != 1 or (given.gold is None) != (given.answer is None):
        raise ConfigError(
            "verify: wanted exactly one of --cases FILE, --gold TEXT with --answer TEXT, or --completions FILE."
        )
    if given.json not in (None, "-"):
        cli.check_writable(Path(given.json), "--json")
    if given.completions is not None:
        config.validate("verifier")
        result = audit.audit(audit.read_completions(Path(given.completions)), config)
        _output(result, given.json, lambda console: _print_audit(console, result))
    elif given.kind not in KINDS:
        raise ConfigError(f"--kind: got {given.kind!r}, wanted one of {', '.join(KINDS)}.")
    elif given.gold is not None:
        if given.kind != "math":
            raise ConfigError(
                f"--kind: got {given.kind!r}, wanted 'math': only its verdicts can be explained by --gold."
            )
        explanation = explain(given.gold, given.answer, config.math)
        _output(explanation, given.json, lambda console: _print_explanation(console, explanation))
    else:
        _run_cases(Path(given.cases), given.kind, config, given.json)
    return 0


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("kind", None, "math, code or proof.", flag_values=values)
    flags.DEFINE_string("cases", None, "File of labelled cases.", flag_values=values)
    flags.DEFINE_string("gold", None, "Reference answer.", flag_values=values)
    flags.DEFINE_string("answer", None, "Answer to judge.", flag_values=values)
    flags.DEFINE_string("completions", None, "File of your own completions.", flag_values=values)
    flags.DEFINE_string("json", None, "Where the result goes as JSON.", flag_values=values)
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes.", lower_bound=1, flag_values=values)
    return values


def _run_cases(path: Path, kind: cases.Kind, config: VerifierConfig, json_path: str | None) -> None:
    labelled = cases.read_cases(path, kind)
    verdicts = cases.judge_cases(labelled, kind, config)
    result = cases.report(labelled, verdicts)
    _output(result, json_path, lambda console: _print_cases(console, labelled, result))


def _output(result: Mapping[str, Any], json_path: str | None, show: Any) -> None:
    text = json.dumps(result, indent=2) + "\n"
    if json_path == "-":
        sys.stdout.write(text)
        return
    show(Console(highlight=False))
    if json_path is not None:
        Path(json_path).write_text(text)


def _print_cases(console: Console, labelled: Sequence[cases.Case], result: Mapping[str, Any]) -> None:
    table = Table("", "cases", "right", "accuracy", "false positives", "false negatives")
    for name, counts in (("all", result), ("sure", result["sure"])):
        accuracy = f"{counts['right'] / counts['cases']:.2%}" if counts["cases"] else "-"
        columns = ("cases", "right", None, "false_positives", "false_negatives")
        table.add_row(name, *(accuracy if column is None else str(counts[column]) for column in columns))
    console.print(table)
    console.print(
        f"milliseconds: p50 {result['p50_ms']:.2f}, p99 {result['p99_ms']:.1f}, max {result['max_ms']:.1f}; "
        f"{result['timeouts']} timeouts, {result['errors']} errors of the judge"
    )
    said_of = {name: "accepted" if verdict["correct"] else "refused" for name, verdict in result["verdicts"].items()}
    said_of |= {name: "error of the judge" for name, verdict in result["verdicts"].items() if verdict["error"]}
    wrong = [case for case in labelled if said_of[case.identifier] != ("accepted" if case.expected else "refused")]
    for case in wrong[:SHOWN_DISAGREEMENTS]:
        verdict = result["verdicts"][case.identifier]
        said = said_of[case.identifier]
        remark = ", a matter of convention" if case.convention else ""
        console.print(f"{case.identifier}: {said} ({verdict['reason']}), labelled otherwise{remark}", markup=False)
    if len(wrong) > SHOWN_DISAGREEMENTS:
        console.print(f"... and {len(wrong) - SHOWN_DISAGREEMENTS} more; --json has all")


def _print_explanation(console: Console, explanation: Mapping[str, Any]) -> None:
    for name, value in explanation.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        console.print(f"{name.replace('_', ' '):<16} {shown}", markup=False)


def _print_audit(console: Console, result: Mapping[str, Any]) -> None:
    console.print(
        f"{result['accepted']} of {result['completions']} completions accepted, "
        f"mean reward {result['mean_reward']:.3f}, "
        f"{result['timeouts']} timeouts, {result['errors']} errors of the judge"
    )
    for title, counts in (("reasons", result["reasons"]), ("flags", result["flags"])):
        for phrase, count in counts.items():
            console.print(f"  {title[:-1]:<8}{count:>6}  {phrase}", markup=False)
    for finding in result["findings"]:
        console.print(f"look at this: {finding['why']}", markup=False)
        for row in finding["rows"]:
            console.print(f"  line {row['line']} (answer {row['answer']!r}): {row['completion']!r}", markup=False)


if __name__ == "__main__":
    cli.run(main)
