import json
import logging
import sys
import zlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from grpo_jax.config import ColdStartConfig, DataConfig
from grpo_jax.data.files import FileTask
from grpo_jax.data.splits import SPLITS
from grpo_jax.data.tasks import build_task, check_prompt_lengths
from grpo_jax.data.tokenizer import ByteTokenizer, CharacterTokenizer


def config(path, **values):
    return DataConfig(task="file", path=str(path), **values)


def write_jsonl(path, rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def rows_with_splits(count=6):
    return [
        {"problem": f"what is {i}?", "answer": str(i), "split": SPLITS[i % 3], "level": i, "tags": ["x"]}
        for i in range(count)
    ]


@pytest.fixture(params=["jsonl", "parquet"])
def write(request, tmp_path):
    def write_rows(rows):
        path = tmp_path / f"problems.{request.param}"
        if request.param == "jsonl":
            return write_jsonl(path, rows)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path

    return write_rows


def test_rows_become_problems_in_their_own_split(write):
    task = FileTask(config(write(rows_with_splits()), prompt_template="Q: {problem}\nA:"))
    train = task.problems("train")
    assert [problem.prompt for problem in train] == ["Q: what is 0?\nA:", "Q: what is 3?\nA:"]
    assert [problem.answer for problem in task.problems("test")] == ["2", "5"]
    assert train[1].extra == {"split": "train", "level": 3, "tags": ["x"]}
    assert train[1].identifier.startswith("problems.")
    assert train[1].identifier.endswith(":4")


def test_without_a_split_column_the_hash_of_the_problem_decides(write):
    rows = [{"problem": f"p{i}", "answer": str(i)} for i in range(300)]
    task = FileTask(config(write(rows)))
    texts = {split: {problem.prompt for problem in task.problems(split)} for split in SPLITS}
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 300
    for split, low, high in (("validation", 0, 50), ("test", 50, 100), ("train", 100, 1000)):
        assert all(low <= zlib.crc32(text.encode()) % 1000 < high for text in texts[split]), split


def test_held_out_sizes_are_upper_bounds(write):
    rows = [{"problem": f"p{i}", "answer": str(i)} for i in range(300)]
    task = FileTask(config(write(rows), validation_problems=3, test_problems=10_000))
    assert len(task.problems("validation")) == 3
    assert 3 < len(task.problems("test")) < 40


@pytest.mark.parametrize(("answer", "text"), [(7, "7"), (-2.5, "-2.5"), ("1/2", "1/2"), (10**30, str(10**30))])
def test_answers_given_as_numbers_become_text(tmp_path, answer, text):
    rows = [*rows_with_splits(3), {"problem": "new", "answer": answer, "split": "train"}]
    task = FileTask(config(write_jsonl(tmp_path / "p.jsonl", rows)))
    assert task.problems("train")[-1].answer == text


BAD_ROWS = [
    ("{not json", "not JSON"),
    (["a list"], r"not an object \(got list\)"),
    ({"answer": "1"}, r"no problem \(column 'problem': wanted text; the row has answer\)"),
    ({"problem": 3, "answer": "1"}, r"problem is not text \(column 'problem': got int, wanted text\)"),
    ({"problem": "  ", "answer": "1"}, "empty problem"),
    ({"problem": "x"}, r"no answer \(column 'answer': wanted text or a number; the row has problem\)"),
    ({"problem": "x", "answer": None}, "no answer"),
    ({"problem": "x", "answer": " "}, "empty answer"),
    (
        {"problem": "x", "answer": True},
        r"answer is neither text nor a number \(column 'answer': got bool, wanted text or a number\)",
    ),
    (
        {"problem": "x", "answer": ["1"]},
        r"answer is neither text nor a number \(column 'answer': got list, wanted text or a number\)",
    ),
    ('{"problem": "x", "answer": NaN}', r"answer is not finite \(column 'answer': got nan\)"),
    ('{"problem": "half \\ud800", "answer": "1"}', "not valid Unicode"),
    ({"problem": "what is 0?", "answer": "1", "split": "train"}, r"duplicate problem \(same as row 1\)"),
    ({"problem": " what  is\n0?", "answer": "1", "split": "train"}, r"duplicate problem \(same as row 1\)"),
    ({"problem": "x", "answer": "1", "split": "dev"}, r"split is not one of train, validation, test \(got 'dev'\)"),
    ({"problem": "x", "answer": "1"}, r"split is not one of train, validation, test \(got None\)"),
    ("[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_a_bad_row_is_named_with_number_and_reason(tmp_path, row, reason):
    path = write_jsonl(tmp_path / "p.jsonl", [*rows_with_splits(3), row])
    with pytest.raises(ValueError, match=rf"p\.jsonl has 1 bad rows:\n  row 4: {reason}(?s:.)*data\.bad_rows"):
        FileTask(config(path))


def test_all_bad_rows_are_in_one_message(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", [*rows_with_splits(3), "", *(row for row, _ in BAD_ROWS)])
    with pytest.raises(ValueError, match=f"has {len(BAD_ROWS)} bad rows") as caught:
        FileTask(config(path))
    for number in range(5, 5 + len(BAD_ROWS)):
        assert f"\n  row {number}: " in str(caught.value)
    assert "more" not in str(caught.value)


def test_a_long_list_of_bad_rows_is_cut(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", [*rows_with_splits(3), *["{}"] * 23])
    with pytest.raises(ValueError, match=r"has 23 bad rows(?s:.)*row 23: no problem [^\n]*\n  and 3 more\n"):
        FileTask(config(path))


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path, caplog):
    path = write_jsonl(tmp_path / "p.jsonl", [*rows_with_splits(3), "{", "{}", "{}"])
    with caplog.at_level(logging.WARNING, "grpo_jax"):
        task = FileTask(config(path, bad_rows="skip"))
    assert [len(task.problems(split)) for split in SPLITS] == [1, 1, 1]
    assert "skipped 3 bad rows: 1 not JSON, 2 no problem" in caplog.text


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet"])
def test_a_missing_file_is_named_in_full(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"config\.data\.path: no file at {tmp_path.resolve()}/{name}"):
        FileTask(config(name))


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "p.tsv").write_text("problem\tanswer\n")
    with pytest.raises(ValueError, match=r"p\.tsv, wanted a file that ends in \.jsonl, \.json, \.csv, \.parquet"):
        FileTask(config(tmp_path / "p.tsv"))


def test_a_broken_parquet_file_is_named(tmp_path):
    (tmp_path / "p.parquet").write_text("no parquet")
    with pytest.raises(ValueError, match=r"config\.data\.path: .*p\.parquet is not a readable parquet file"):
        FileTask(config(tmp_path / "p.parquet"))


def test_missing_pyarrow_is_explained_for_parquet_alone(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows_with_splits()), tmp_path / "p.parquet")
    write_jsonl(tmp_path / "p.jsonl", rows_with_splits())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'grpo-jax\[parquet\]'"):
        FileTask(config(tmp_path / "p.parquet"))
    assert len(FileTask(config(tmp_path / "p.jsonl")).problems("train")) == 2


def test_a_file_without_usable_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"p\.jsonl has no usable row"):
        FileTask(config(write_jsonl(tmp_path / "p.jsonl", [])))


def test_a_small_file_that_leaves_a_split_empty_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", [{"problem": f"p{i}", "answer": "1"} for i in range(5)])
    with pytest.raises(ValueError, match=r"none of the 5 rows of .* is a validation problem\. Add rows .*'split'"):
        FileTask(config(path))


def test_a_split_column_that_lacks_a_split_is_refused(tmp_path):
    rows = [row for row in rows_with_splits() if row["split"] != "test"]
    with pytest.raises(ValueError, match=r"none of the 4 rows .* is a test problem\. Mark some rows"):
        FileTask(config(write_jsonl(tmp_path / "p.jsonl", rows)))


def test_a_file_has_no_demonstrations(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", rows_with_splits())
    task = build_task(config(path), ColdStartConfig())
    with pytest.raises(ValueError, match=r"no worked examples.*Set cold_start\.steps to 0"):
        task.demonstration(task.problems("train")[0], np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"config\.cold_start\.steps: .*Set cold_start\.steps to 0"):
        build_task(config(path), ColdStartConfig(steps=1))


def test_long_prompts_of_a_file_are_named_or_left_out(tmp_path, caplog):
    rows = [*rows_with_splits(), {"problem": "x" * 30, "answer": "1", "split": "train"}]
    path = write_jsonl(tmp_path / "p.jsonl", rows)
    strict = config(path, max_prompt_tokens=16)
    lenient = config(path, max_prompt_tokens=16, bad_rows="skip")
    with pytest.raises(ValueError, match=r"got 16, which cannot hold 1 prompts:\n  p\.jsonl:7: 31 tokens\nRaise"):
        check_prompt_lengths(FileTask(strict), ByteTokenizer(), strict)
    with caplog.at_level(logging.WARNING, "grpo_jax"):
        task = check_prompt_lengths(FileTask(lenient), ByteTokenizer(), lenient)
    assert [problem.identifier for problem in task.problems("train")] == ["p.jsonl:1", "p.jsonl:4"]
    assert "left out 1 prompts" in caplog.text
    with pytest.raises(ValueError, match="no worked examples"):
        task.demonstration(task.problems("train")[0], np.random.default_rng(0))


def test_a_limit_that_leaves_a_split_empty_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", rows_with_splits())
    lenient = config(path, bad_rows="skip", max_prompt_tokens=5)
    with pytest.raises(ValueError, match=r"config\.data\.max_prompt_tokens: got 5, which leaves no train problem"):
        check_prompt_lengths(FileTask(lenient), ByteTokenizer(), lenient)


def test_a_prompt_that_the_tokenizer_cannot_encode_is_named(tmp_path):
    rows = [{"problem": str(i), "answer": "1", "split": SPLITS[i % 3]} for i in range(3)]
    path = write_jsonl(tmp_path / "p.jsonl", [*rows, {"problem": "1+x", "answer": "1", "split": "test"}])
    with pytest.raises(ValueError, match=r"p\.jsonl:4: the characters tokenizer has no token for 'x' in '1\+x'"):
        check_prompt_lengths(FileTask(config(path)), CharacterTokenizer(), config(path))
