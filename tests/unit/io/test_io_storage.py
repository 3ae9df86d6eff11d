import errno
import os
from pathlib import Path

import pytest

from grpo_jax.io import storage
from grpo_jax.io.storage import FolderRefused, StorageFailed, make_folder, replace_text, writing


def refusal(code):
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free space there"),
        (errno.EDQUOT, "have the quota raised"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EIO, "Check the disk"),
        (errno.EROFS, "Mount it"),
    ],
)
def test_a_refusal_names_the_file_the_systems_words_and_what_to_do(tmp_path, code, remedy):
    with pytest.raises(StorageFailed) as raised, writing(tmp_path / "a"):
        raise refusal(code)
    assert str(raised.value).startswith(f"{tmp_path / 'a'} cannot be written: {os.strerror(code)}. ")
    assert remedy in str(raised.value)
    assert (raised.value.exit_status, raised.value.only_here) == (7, True)


def test_libraries_that_quote_the_system_are_understood():
    quoting = ValueError("RESOURCE_EXHAUSTED: Failed writing: No space left on device [os_error_code='28']")
    wrapped = RuntimeError("the save failed")
    wrapped.__cause__ = quoting
    for error in (quoting, wrapped):
        with pytest.raises(StorageFailed, match="a cannot be written: No space left"), writing(Path("a")):
            raise error


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "gone"), PermissionError(1, "no"), ValueError("x")])
def test_other_errors_are_left_alone(error):
    with pytest.raises(type(error)) as raised, writing(Path("a")):
        raise error
    assert raised.value is error
    assert storage.explained(error) is error


def test_of_two_refusals_the_first_is_told():
    def ends_with_two() -> None:
        try:
            with writing(Path("first")):
                raise refusal(errno.ENOSPC)
        finally:
            with writing(Path("second")):
                raise refusal(errno.EIO)

    with pytest.raises(StorageFailed, match="first cannot"):
        ends_with_two()


def test_a_file_of_a_run_says_where_the_run_goes_on(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    error = StorageFailed(tmp_path / "metrics.jsonl", errno.ENOSPC)
    assert str(error).endswith("the same command again: nothing was saved yet, so it starts afresh.")
    for name in ("cold_start/4", "grpo/8", "grpo/12", "grpo/16.orbax-checkpoint-tmp", "grpo/20.corrupt"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert str(error).endswith("the same command again: it goes on from checkpoint 12 of grpo.")
    inner = StorageFailed(tmp_path / "checkpoints" / "grpo" / "16", errno.ENOSPC)
    assert str(inner).endswith("it goes on from checkpoint 12 of grpo.")


def test_a_text_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    replace_text(tmp_path / "a", "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(refusal(errno.ENOSPC)))
    with pytest.raises(StorageFailed, match="No space left"):
        replace_text(tmp_path / "a", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_half_a_character_is_written_as_an_escape(tmp_path):
    replace_text(tmp_path / "a", "half \udfff and whole \u00e9")
    assert (tmp_path / "a").read_text() == "half \\udfff and whole \u00e9"


@pytest.mark.parametrize("path", ["file/below", "n" * 300])
def test_a_folder_that_cannot_be_made_names_its_flag(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match=r"^--to: .* cannot be made: .*\. Choose another folder"):
        make_folder(tmp_path / path, "--to")
