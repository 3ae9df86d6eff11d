"""Files in a scratch folder that a hostile program has owned: written before it runs, read and removed after it.

Nothing here follows a symbolic link, blocks on a pipe or recurses.
"""

import os
import stat
from collections.abc import Iterable, Mapping

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_name(name: str) -> str:
    """Returns the name of a file in a scratch folder.

    Raises:
        ValueError: if it is not a plain relative path.
    """
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts) or "\0" in name:
        raise ValueError(f"Sandbox: got file name {name!r}, wanted a relative path without '.' and '..'.")
    return name


def write_files(folder: str, files: Mapping[str, bytes], owner: int | None) -> None:
    """Writes files into a fresh folder, before any program runs in it.

    Args:
        folder: Path of the folder.
        files: Content by relative name.
        owner: User and group id that files and folders are given to, or ``None`` to leave them.
    """
    made = {folder}
    for name, content in files.items():
        path = os.path.join(folder, check_name(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        while path != folder:
            made.add(path)
            path = os.path.dirname(path)
    if owner is not None:
        for path in made:
            os.chown(path, owner, owner)


def read_files(folder: str, names: Iterable[str], limit_bytes: int) -> dict[str, bytes]:
    """Reads those of the named files that are regular and not too large; call it when no program is left.

    Args:
        folder: Path of the folder.
        names: Relative names.
        limit_bytes: Largest size of a file that is read.

    Returns:
        Content by name.
    """
    found = {}
    for name in names:
        *folders, last = check_name(name).split("/")
        opened = [os.open(folder, _FOLDER_FLAGS)]
        try:
            for part in folders:
                opened.append(os.open(part, _FOLDER_FLAGS, dir_fd=opened[-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened.append(os.open(last, flags, dir_fd=opened[-1]))
            status = os.fstat(opened[-1])
            if stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes:
                found[name] = _read_all(opened[-1], limit_bytes)
        except OSError:
            # Not there, a link, or without permission: the program has not left such a file.
            continue
        finally:
            for descriptor in opened:
                os.close(descriptor)
    return found


def _read_all(descriptor: int, limit_bytes: int) -> bytes:
    content = bytearray()
    while len(content) <= limit_bytes and (chunk := os.read(descriptor, 1 << 20)):
        content += chunk
    return bytes(content)


def remove(folder: str) -> None:
    """Removes a folder with all that is in it, however deep, with one open folder at a time.

    Args:
        folder: Path of the folder, in which no program runs any more.
    """
    here = os.open(folder, _FOLDER_FLAGS)
    path: list[str] = []
    try:
        while True:
            inner = _remove_files(here)
            if inner is not None:
                os.chmod(inner, stat.S_IRWXU, dir_fd=here)
                here = _step(here, inner)
                path.append(inner)
            elif path:
                # Nobody is left to move folders about, so this is the one that we came from.
                here = _step(here, os.pardir)
                os.rmdir(path.pop(), dir_fd=here)
            else:
                break
    finally:
        os.close(here)
    os.rmdir(folder)


def _remove_files(here: int) -> str | None:
    """Removes what is no folder, up to the first folder, and returns that one's name."""
    os.fchmod(here, stat.S_IRWXU)
    for name in os.listdir(here):
        if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            return name
        os.unlink(name, dir_fd=here)
    return None


def _step(here: int, name: str) -> int:
    there = os.open(name, _FOLDER_FLAGS, dir_fd=here)
    os.close(here)
    return there
