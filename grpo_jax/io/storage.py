"""Files that the system refuses to write: a full disk, a quota, a broken or read-only file system."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

STATUS = 7
"""Exit status where a file cannot be written."""

_REMEDIES = {
    errno.ENOSPC: "Free space there",
    errno.EDQUOT: "Free space there, or have the quota raised",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
    errno.EIO: "Check the disk",
    errno.EROFS: "Mount it so that it can be written",
}
"""What to do, by what the system said."""


class StorageFailed(RuntimeError):  # noqa: N818
    """The system refused to write a file.

    Attributes:
        path: The file, or the folder that it lies in.
        only_here: The other processes of a run do not know of it.
    """

    exit_status = STATUS
    only_here = True

    def __init__(self, path: Path, code: int) -> None:
        """Remembers what failed.

        Args:
            path: The file.
            code: What the system said: one of the numbers of ``errno``.
        """
        super().__init__(path, code)
        self.path, self._code = path, code

    def __str__(self) -> str:
        # Put together when it is shown: a checkpoint that was being written may have become whole by then.
        return (
            f"{self.path} cannot be written: {os.strerror(self._code)}. {_REMEDIES[self._code]}, then give the same "
            f"command again{_goes_on(self.path)}."
        )


class FolderRefused(ValueError):  # noqa: N818
    """A folder cannot be there."""

    exit_status = 2


def make_folder(path: Path, flag: str) -> None:
    """Makes a folder and its parents, unless it is there.

    Args:
        path: The folder.
        flag: The flag that named it.

    Raises:
        FolderRefused: if nothing can be made there, such as below a file, or under a name that is too long.
        StorageFailed: if the system refuses to write.
    """
    with writing(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno is None or error.errno in _REMEDIES:
                raise
            reason = os.strerror(error.errno)
            raise FolderRefused(f"{flag}: {path} cannot be made: {reason}. Choose another folder.") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into ``StorageFailed``.

    Args:
        path: What is written inside the context.

    Raises:
        StorageFailed: naming ``path``; if one is being handled already, that one: the first says where it began.
    """
    try:
        yield
    except Exception as error:
        code = code_of(error)
        if code is None:
            raise
        raise _earlier(error) or StorageFailed(path, code) from error


def replace_text(path: Path, text: str) -> None:
    """Writes a text file in one atomic step: a reader sees the old file or the new one.

    Args:
        path: The file, replaced if it exists.
        text: Its new content; halves of characters, which no file can hold, are written as escapes.

    Raises:
        StorageFailed: if the system refuses; the old file stays.
    """
    with writing(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                os.fchmod(handle, 0o644)
                file.write(text)
                file.flush()
                os.fsync(handle)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def explained(error: Exception) -> Exception:
    """An error as people can act on it.

    Args:
        error: What ended a command.

    Returns:
        ``StorageFailed`` where the system refused to write a file, else the error.
    """
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return StorageFailed(Path(error.filename or "a file"), error.errno)
    return error


def code_of(error: BaseException | None) -> int | None:
    """What the system said, if it refused to write; libraries that are not written in Python only quote it.

    Args:
        error: An error; what it was raised from counts too.

    Returns:
        One of the numbers of ``errno``, or None.
    """
    while error is not None and not isinstance(error, StorageFailed):
        if isinstance(error, OSError):
            return error.errno if error.errno in _REMEDIES else None
        quoted = [code for code in _REMEDIES if os.strerror(code) in str(error)]
        if quoted:
            return quoted[0]
        error = error.__cause__ or error.__context__
    return None


def _earlier(error: BaseException) -> StorageFailed | None:
    found, at = None, error.__context__
    while at is not None:
        found = at if isinstance(at, StorageFailed) else found
        at = at.__context__
    return found


def _goes_on(path: Path) -> str:
    """Where the run goes on that a file belongs to."""
    for folder in (path, *path.parents):
        if (folder / "run.json").exists():
            phases = sorted((folder / "checkpoints").glob("*"), key=lambda phase: phase.name == "cold_start")
            for phase in phases:
                if steps := [int(step.name) for step in phase.iterdir() if step.name.isdecimal()]:
                    return f": it goes on from checkpoint {max(steps)} of {phase.name}"
            return ": nothing was saved yet, so it starts afresh"
    return ""
