"""System calls that Python 3.11 does not offer, through ctypes. Importing this module calls nothing."""

import ctypes
import os
import platform
import struct
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
CLONE_NEWCGROUP, CLONE_NEWTIME = 0x0200_0000, 0x0000_0080
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38

MACHINE = platform.machine()
IS_LINUX = sys.platform == "linux"

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x2008_0522
_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Turns a system call's -1 into an OSError that names the call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, what: str, *arguments: int | bytes | ctypes.Array | None) -> int:
    """Makes a system call by number.

    Args:
        number: The call's number on this machine.
        what: Its name, for the error.
        *arguments: Integers and pointers.

    Returns:
        What the kernel returned.

    Raises:
        OSError: if the call fails.
    """
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return checked(_libc.syscall(ctypes.c_long(number), *words), what)


def unshare(flags: int) -> None:
    """Puts this process into new namespaces."""
    checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """Mounts a file system, or changes a mount."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    checked(result, f"mount {target}")


def enter_root(path: str) -> None:
    """Makes a mount the root of this process's mount namespace and drops the old root."""
    os.chdir(path)
    syscall(_PIVOT_ROOT[MACHINE], "pivot_root", b".", b".")
    checked(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def prctl(option: int, value: int, pointer: ctypes.Array | None = None) -> None:
    """Changes an attribute of this process."""
    checked(_libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0), f"prctl({option})")


def drop_capabilities() -> None:
    """Gives up every capability of this thread, for good once no new privileges can be had."""
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    checked(_libc.capset(header, bytes(24)), "capset")


def identity_maps() -> list[tuple[int, int]]:
    """The user ids that exist in this process's user namespace, as (first id, count)."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return [(int(inside), int(count)) for inside, _, count in map(str.split, file)]


def new_user_namespace(further: int) -> None:
    """Enters a new user namespace in which this process keeps its ids, with further namespaces of it.

    Args:
        further: Flags of the other namespaces.
    """
    user, group = os.getuid(), os.getgid()
    # A process that changed its user id does not own its files in /proc until it may be dumped again.
    prctl(PR_SET_DUMPABLE, 1)
    unshare(CLONE_NEWUSER | further)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
