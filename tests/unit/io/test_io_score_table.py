import io

from rich.console import Console

from grpo_jax.io import score_table


def score(value, problems=9):
    return {"value": value, "low": value and value - 0.1, "high": value and value + 0.1, "problems": problems}


def test_every_score_has_a_row_that_fits_a_terminal_whatever_a_category_is_called():
    scores = {"pass@1": score(0.25), "maj@16": score(None, 0)}
    result = {
        "model": "[bold]m",
        "problems": 9,
        "split": "test",
        "seed": 0,
        "sampling": {"completions_per_prompt": 16, "temperature": 0.7},
        "scores": scores,
        "categories": {"[red]all": scores, "Level 5": scores},
        "method": "how",
        "unanswered": 1,
        "cut_off": 2,
        "judge_errors": 3,
        "timeouts": 4,
    }
    console = Console(file=io.StringIO(), width=80, highlight=False)
    score_table.show(result, console)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "[bold]m"
    assert lines[1] == "9 problems (test), 16 completions each, temperature 0.7, seed 0"
    assert sum("pass@1 │ 0.250 │ 0.150 to 0.350 │ 9" in line for line in lines) == 3
    assert sum("maj@16 │ -     │ -              │ 0" in line for line in lines) == 3
    assert any("[red]all" in line for line in lines)
    assert lines[-1] == "1 completions without an answer, 2 cut off, 3 errors of the judge left out, 4 timeouts"
