"""Landlock: which files a process and its children may open, granted path by path."""

import errno
import os
import struct
from collections.abc import Iterable

from grpo_jax.verifiers.sandbox import system

# The numbers are the same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _RULE_PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_TRUNCATE_VERSION = 3
_NET_TCP = 3
_SCOPES = 3

READ = _READ_FILE | _READ_DIR
EXECUTE = READ | _EXECUTE
WRITE_FILE = _READ_FILE | _WRITE_FILE
# Everything but executing, devices and unix sockets.
WRITE = (1 << 15) - 1 & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK)


def version() -> int:
    """The version that the kernel offers.

    Raises:
        OSError: if it has none, or it is switched off.
    """
    return system.syscall(_CREATE_RULESET, "landlock", None, 0, _GET_VERSION)


def require_alone() -> None:
    """Makes sure that Landlock covers all that changes files' content, where nothing else keeps a process from them.

    Raises:
        OSError: if the kernel's version lets a process truncate files that it may not write.
    """
    offered = version()
    if offered < _TRUNCATE_VERSION:
        raise OSError(
            errno.ENOSYS,
            f"landlock: the kernel offers version {offered}, wanted {_TRUNCATE_VERSION} or later (Linux 6.2), "
            "which also refuses to truncate files",
        )


def restrict(grants: Iterable[tuple[str, int]]) -> None:
    """Confines this process: whatever is not granted cannot be opened, made, removed or run any more.

    TCP, abstract unix sockets and signals to processes outside are refused too where the kernel knows how.

    Args:
        grants: Paths with the rights beneath each; a path that is not there is left out.

    Raises:
        OSError: if the kernel refuses; ``PR_SET_NO_NEW_PRIVS`` must be set before.
    """
    offered = version()
    handled = _ALL_BY_VERSION[min(offered, 5)]
    attributes = struct.pack("QQQ", handled, _NET_TCP, _SCOPES)[: 24 if offered >= 6 else 16 if offered >= 4 else 8]
    ruleset = system.syscall(_CREATE_RULESET, "landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for path, rights in grants:
            _grant(ruleset, path, rights & handled)
        system.syscall(_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, place)
        system.syscall(_ADD_RULE, f"landlock_add_rule {path}", ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(place)
