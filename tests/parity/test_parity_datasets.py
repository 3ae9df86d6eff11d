"""Rows read through the Hugging Face library; nothing is downloaded."""

import pytest

from grpo_jax.config import DataConfig
from grpo_jax.data.files import FileTask
from grpo_jax.data.splits import SPLITS

datasets = pytest.importorskip("datasets")

GSM8K = {"task": "file", "problem_column": "question", "answer_format": "gsm8k"}


def rows(start, count):
    return [
        {"question": f"what is {i}?", "answer": f"It is <<{i}={i}>>{i}.\n#### {i}"} for i in range(start, start + count)
    ]


@pytest.fixture
def saved(tmp_path):
    """A folder as ``save_to_disk`` leaves it, with two splits."""
    folder = tmp_path / "gsm8k"
    splits = {"train": datasets.Dataset.from_list(rows(0, 200)), "test": datasets.Dataset.from_list(rows(1000, 20))}
    datasets.DatasetDict(splits).save_to_disk(str(folder))
    return folder


@pytest.mark.parametrize(("train", "test"), [(":train", ":test"), ("/train", "/test")])
def test_a_saved_folder_is_read(saved, train, test):
    task = FileTask(DataConfig(path=f"{saved}{train}", test_path=f"{saved}{test}", **GSM8K))
    assert sorted(int(problem.answer) for problem in task.problems("test")) == list(range(1000, 1020))
    answers = [int(problem.answer) for split in SPLITS[:2] for problem in task.problems(split)]
    assert sorted(answers) == list(range(200))
    assert task.problems("train")[0].identifier.startswith("gsm8k:train:" if train == ":train" else "train:")


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("", r"config\.data\.path: got .*gsm8k, wanted .*gsm8k with one of :train, :test behind it"),
        (":dev", r"got .*gsm8k:dev, wanted .* with one of :train, :test behind it"),
        ("/train:train", r"got .*train:train, wanted .*/gsm8k/train alone"),
        ("/..", r"config\.data\.path: .* is no folder that save_to_disk\(\) of the datasets library wrote"),
    ],
)
def test_another_folder_or_split_is_refused(saved, ending, message):
    with pytest.raises(ValueError, match=message):
        FileTask(DataConfig(path=f"{saved}{ending}", **GSM8K))


@pytest.mark.parametrize(("name", "subset"), [("openai/gsm8k/main:train", "main"), ("openai/gsm8k:train", None)])
def test_a_name_on_the_hub_is_handed_on(monkeypatch, name, subset):
    asked = []

    def load_dataset(path, name=None, *, split=None):
        asked.append((path, name, split))
        return datasets.Dataset.from_list(rows(0, 200))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = FileTask(DataConfig(path=f"hf:{name}", **GSM8K))
    assert asked == [("openai/gsm8k", subset, "train")]
    assert task.problems("test")[0].identifier.startswith(f"hf:{name}:")


def test_a_name_that_the_hub_does_not_know_is_refused(monkeypatch):
    def load_dataset(path, name=None, *, split=None):
        raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{path}' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ValueError, match=r"config\.data\.path: hf:no/one:train cannot be loaded: DatasetNotFoundError"):
        FileTask(DataConfig(path="hf:no/one:train", **GSM8K))
