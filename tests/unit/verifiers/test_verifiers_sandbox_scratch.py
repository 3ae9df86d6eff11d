import os

import pytest

from grpo_jax.verifiers.sandbox import scratch


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../b", "a//b", "./a", "a\0b", "a/"])
def test_names_that_leave_the_folder_are_refused(name):
    with pytest.raises(ValueError, match="wanted a relative path"):
        scratch.check_name(name)


def test_files_are_written_and_read_back(tmp_path):
    files = {"a": b"1", "b/c/d": b"\0\xff"}
    scratch.write_files(str(tmp_path), files, None)
    assert scratch.read_files(str(tmp_path), [*files, "missing", "b", "b/none"], 10) == files


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_files_are_given_to_the_job(tmp_path):
    scratch.write_files(str(tmp_path), {"a/b": b"1"}, 12345)
    assert {path.stat().st_uid for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")} == {12345}


def test_only_regular_files_of_the_folder_are_read(tmp_path):
    folder, outside = tmp_path / "scratch", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder / "link").symlink_to(outside / "secret")
    (folder / "folder").symlink_to(outside)
    (folder / "large").write_bytes(bytes(11))
    os.mkfifo(folder / "pipe")
    assert scratch.read_files(str(folder), ["link", "folder/secret", "large", "pipe"], 10) == {}


def test_removal_follows_no_link_and_is_not_stopped_by_depth_or_permissions(tmp_path):
    folder, outside = tmp_path / "scratch", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.fchmod(deep, 0)
    os.close(deep)
    scratch.remove(str(folder))
    assert not folder.exists()
    assert (outside / "kept").read_text() == "kept"
