"""CSV and JSON files give the rows that the same problems in JSONL would give, and say what is wrong with them."""

import json

import pytest

from grpo_jax.config import DataConfig
from grpo_jax.data.files import FileTask
from grpo_jax.data.sources import Unreadable, open_source
from grpo_jax.data.splits import SPLITS

ROWS = [
    {"problem": 'a, "b"\nand c', "answer": "1,000", "split": "train"},
    {"problem": "ü", "answer": " 2 ", "split": "validation"},
    {"problem": "x" * 200_000, "answer": "3", "split": "test"},
]
CSV = (
    '\ufeffproblem,answer,split\r\n"a, ""b""\nand c","1,000",train\r\n\r\nü," 2 ",validation\r\n'
    + "x" * 200_000
    + ",3,test"
)


def problems(path):
    task = FileTask(DataConfig(task="file", path=str(path)))
    return [(p.prompt, p.answer, p.extra, p.identifier.partition(":")[2]) for s in SPLITS for p in task.problems(s)]


def test_csv_and_json_are_read_as_jsonl_is(tmp_path):
    (tmp_path / "p.csv").write_text(CSV, newline="")
    (tmp_path / "p.json").write_text(json.dumps(ROWS))
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert problems(tmp_path / "p.csv") == problems(tmp_path / "p.json") == problems(tmp_path / "p.jsonl")


def test_a_line_of_csv_with_other_cells_is_a_bad_row(tmp_path):
    (tmp_path / "p.csv").write_text("problem,answer\na,1\nb\nc,1,2\n")
    rows = list(open_source(str(tmp_path / "p.csv"), "data.path").rows)
    assert rows[0] == (1, {"problem": "a", "answer": "1"})
    assert rows[1:] == [
        (number, Unreadable("not as many cells as columns", f"{cells} for 2 columns"))
        for number, cells in ((2, 1), (3, 3))
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "p.csv",
            b'problem,answer\n"a,1\n',
            r"config\.data\.path: .*p\.csv is not a readable CSV file: unexpected end",
        ),
        ("p.csv", b"problem,answer\n\xff,1\n", r"p\.csv is not a readable CSV file: 'utf-8'"),
        ("p.csv", b"problem,problem\na,1\n", r"wanted a line of different column names"),
        ("p.csv", b"", r"p\.csv has no usable row"),
        ("p.json", b'{"problem": 1}', r"p\.json holds a dict, wanted a list of rows"),
        ("p.json", b'{"problem": 1}\n{"problem": 2}', r"p\.json is not JSON: .*\. One row a line is a \.jsonl file"),
    ],
)
def test_files_that_are_something_else(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        FileTask(DataConfig(task="file", path=str(tmp_path / name)))
