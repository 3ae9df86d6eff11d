"""Small files in the formats in which data sets of mathematics problems are published."""

import json
import logging
import sys

import pyarrow
import pyarrow.parquet
import pytest

from grpo_jax.config import DataConfig
from grpo_jax.data.files import FileTask
from grpo_jax.data.splits import SPLITS

GSM8K = {"problem_column": "question", "answer_format": "gsm8k"}
MATH = {"answer_column": "solution", "answer_format": "boxed"}
DAPO = {"problem_column": "prompt.0.content", "answer_column": "reward_model.ground_truth"}


def write(path, rows):
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def with_splits(row):
    """The row, and one more for each other split."""
    others = [dict(row, split=split) for split in SPLITS]
    for index, other in enumerate(others[1:]):
        for name in ("question", "problem"):
            if name in other:
                other[name] += f" ({index})"
        if "prompt" in other:
            other["prompt"] = [{"role": "user", "content": f"another {index}"}]
    return others


PUBLISHED = [
    (
        GSM8K,
        {"question": "How much is it?", "answer": "She has <<3*4=12>>12 dollars.\n#### 12"},
        ("How much is it?", "12", {"split": "train"}),
    ),
    (
        GSM8K,
        {"question": "How many?", "answer": "1,5 then ####3\n#### -1,234,567.5 "},
        ("How many?", "-1234567.5", {"split": "train"}),
    ),
    (
        MATH,
        {"problem": "Find $x$.", "level": "Level 5", "type": "Algebra", "solution": r"So \boxed{\frac{1}{2}}."},
        ("Find $x$.", r"\frac{1}{2}", {"level": "Level 5", "type": "Algebra", "split": "train"}),
    ),
    (
        MATH,
        {"problem": "Find $y$.", "solution": r"First \boxed{1}, at last \fbox{\text{a}_{\{2\}}}.", "answer": "?"},
        ("Find $y$.", r"\text{a}_{\{2\}}", {"answer": "?", "split": "train"}),
    ),
    (
        {},
        {"problem": "Sum?", "answer": r"-\frac{2}{3}", "solution": "A long one."},
        ("Sum?", r"-\frac{2}{3}", {"solution": "A long one.", "split": "train"}),
    ),
    (
        DAPO,
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": "Solve it."}],
            "reward_model": {"ground_truth": "34", "style": "rule"},
        },
        (
            "Solve it.",
            "34",
            {
                "data_source": "math_dapo",
                "prompt": [{"role": "user", "content": "Solve it."}],
                "reward_model": {"ground_truth": "34", "style": "rule"},
                "split": "train",
            },
        ),
    ),
]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize(("columns", "row", "wanted"), PUBLISHED)
def test_published_rows_become_problems(tmp_path, columns, row, wanted, ending):
    path = write(tmp_path / f"p.{ending}", with_splits(row))
    (problem,) = FileTask(DataConfig(task="file", path=path, **columns)).problems("train")
    assert (problem.prompt, problem.answer, problem.extra) == wanted


@pytest.mark.parametrize(
    ("columns", "row", "reason"),
    [
        (
            GSM8K,
            {"question": "x", "answer": "It is 12."},
            r"no answer in the solution \(column 'answer': wanted a .*####",
        ),
        (GSM8K, {"question": "x", "answer": "12 ####"}, "no answer in the solution"),
        (MATH, {"problem": "x", "solution": "It is 12."}, r"no answer in the solution \(column 'solution': .*boxed"),
        (MATH, {"problem": "x", "solution": r"\boxed{1} \boxed{2"}, "no answer in the solution"),
        (MATH, {"problem": "x", "solution": r"\boxed{ }"}, "no answer in the solution"),
        (MATH, {"problem": "x", "answer": "12"}, r"no answer \(column 'solution': .*; the row has problem, answer\)"),
        (DAPO, {"prompt": [], "reward_model": {}}, r"no problem \(column 'prompt\.0\.content'"),
        (DAPO, {"prompt": [{"content": "x"}], "reward_model": "3"}, r"no answer \(column 'reward_model\.ground_truth'"),
    ],
)
def test_a_row_in_another_format_is_named_with_its_column(tmp_path, columns, row, reason):
    good = next(wanted for given, wanted, _ in PUBLISHED if given == columns)
    path = write(tmp_path / "p.jsonl", [good, row])
    with pytest.raises(ValueError, match=rf"p\.jsonl has 1 bad rows:\n  row 2: {reason}"):
        FileTask(DataConfig(task="file", path=path, **columns))


@pytest.mark.parametrize("bad_rows", ["error", "skip"])
def test_a_file_with_other_columns_says_which_it_has(tmp_path, bad_rows):
    path = write(tmp_path / "p.jsonl", [{"question": "x", "answer": "#### 1"}])
    wanted = r"no usable row\. The first, row 1: no problem .*the row has question, answer.*data\.problem_column"
    with pytest.raises(ValueError, match=wanted):
        FileTask(DataConfig(task="file", path=path, bad_rows=bad_rows))


def test_a_column_whose_name_has_a_dot_goes_before_a_path(tmp_path):
    rows = with_splits({"problem": "x", "a.b": "1", "a": {"b": "2"}})
    path = write(tmp_path / "p.jsonl", rows)
    (problem,) = FileTask(DataConfig(task="file", path=path, answer_column="a.b")).problems("train")
    assert problem.answer == "1"


def problems(count, start=0):
    return [{"problem": f"what is {i}?", "answer": i} for i in range(start, start + count)]


def with_test(tmp_path, rows, test_rows, **values):
    folder = tmp_path / "held_out"
    folder.mkdir()
    test_path = write(folder / "p.jsonl", test_rows)
    return DataConfig(task="file", path=write(tmp_path / "p.jsonl", rows), test_path=test_path, **values)


def test_test_problems_come_from_their_own_file_and_validation_from_the_other(tmp_path):
    task = FileTask(with_test(tmp_path, problems(300), problems(40, 1000), test_problems=30, validation_problems=9))
    texts = {split: [problem.prompt for problem in task.problems(split)] for split in SPLITS}
    assert len(texts["validation"]) == 9
    assert len(texts["test"]) == 30
    assert len(texts["train"]) > 270, "the share that a hash would hold out for the test is trained on"
    assert set(texts["test"]) <= {row["problem"] for row in problems(40, 1000)}
    identifiers = [problem.identifier for split in SPLITS for problem in task.problems(split)]
    assert len(set(identifiers)) == len(identifiers)
    assert task.problems("test")[0].identifier.startswith("test/p.jsonl:")


def test_a_smaller_number_of_test_problems_is_part_of_a_larger_one(tmp_path):
    config = with_test(tmp_path, problems(300), problems(40, 1000), test_problems=10)
    few = {problem.prompt for problem in FileTask(config).problems("test")}
    more = {
        problem.prompt for problem in FileTask(DataConfig(**(vars(config) | {"test_problems": 20}))).problems("test")
    }
    assert few < more


def test_problems_that_are_test_problems_too_are_not_trained_on(tmp_path, caplog):
    shared = [{"problem": f"  what is\n{i}?\t", "answer": i} for i in range(5)]
    with caplog.at_level(logging.WARNING, "grpo_jax"):
        task = FileTask(with_test(tmp_path, problems(300), shared))
    assert "left out 5 problems that are test problems" in caplog.text
    seen = {problem.prompt for split in ("train", "validation") for problem in task.problems(split)}
    assert seen
    assert not seen & {f"what is {i}?" for i in range(5)}
    assert len(task.problems("test")) == 5


def test_a_test_file_with_every_problem_of_the_other_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"config\.data\.test_path: every problem of .*p\.jsonl is in .*held_out/p\.jsonl"
    ):
        FileTask(with_test(tmp_path, problems(300), problems(301)))


def test_bad_rows_of_the_test_file_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"config\.data\.test_path: .*held_out/p\.jsonl has 1 bad rows:\n  row 2: no"):
        FileTask(with_test(tmp_path, problems(300), [*problems(1, 500), {}]))


def test_a_split_column_may_not_name_the_test_that_has_its_own_file(tmp_path):
    rows = [row | {"split": split} for row, split in zip(problems(3), SPLITS, strict=True)]
    config = with_test(tmp_path, rows, [row | {"split": "easy"} for row in problems(2, 100)])
    with pytest.raises(ValueError, match=r"row 3: split is not one of train, validation \(got 'test'\)"):
        FileTask(config)
    write(tmp_path / "p.jsonl", rows[:2])
    task = FileTask(config)
    assert [len(task.problems(split)) for split in SPLITS] == [1, 1, 2]
    assert task.problems("test")[0].extra == {"split": "easy"}


@pytest.mark.parametrize("name", ["hf:openai/gsm8k/main:train", "saved", "saved:train"])
def test_a_missing_library_is_explained_where_it_is_needed(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    with pytest.raises(
        ValueError, match=r"config\.data\.path: .* needs datasets, .*pip install 'grpo-jax\[datasets\]'"
    ):
        FileTask(DataConfig(task="file", path=name))


@pytest.mark.parametrize("name", ["hf:gsm8k", "hf:openai/gsm8k", "hf:openai/gsm8k/:train", "hf:/x:train", "hf:a/b/c:"])
def test_half_a_name_on_the_hub_is_refused(name):
    with pytest.raises(ValueError, match=r"config\.data\.path: got 'hf:.*wanted hf:OWNER/NAME:SPLIT or"):
        FileTask(DataConfig(task="file", path=name))
