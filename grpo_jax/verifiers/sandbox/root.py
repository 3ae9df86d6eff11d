"""A root folder of its own for a zygote and its jobs: read-only views of a few system folders and nothing else."""

import os
from collections.abc import Sequence

from grpo_jax.verifiers.sandbox import system

SCRATCH = "/tmp"
"""Where a job works inside this root, on a file system of its own."""
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

# Bits of statvfs that a mount must keep when it is bound again in a user namespace.
_KEPT_FLAGS = {os.ST_NOSUID: system.MS_NOSUID, os.ST_NODEV: system.MS_NODEV, os.ST_NOEXEC: system.MS_NOEXEC}


def enter_private_root(read_paths: Sequence[str]) -> None:
    """Moves this process into new mount and net namespaces with such a root.

    An ordinary user gets a user namespace for it first. No network interface is up.

    Args:
        read_paths: Absolute paths to show besides the system's folders, read-only.

    Raises:
        OSError: if the system does not allow it.
    """
    namespaces = system.CLONE_NEWNS | system.CLONE_NEWNET
    if os.geteuid() == 0:
        system.unshare(namespaces)
    else:
        system.new_user_namespace(namespaces)
    system.mount("none", "/", None, system.MS_REC | system.MS_PRIVATE)
    shown = [path for path in (*SYSTEM_FOLDERS, *DEVICES, "/proc", *read_paths) if os.path.lexists(path)]
    links = {path: os.readlink(path) for path in shown if os.path.islink(path)}
    # Opened before anything covers them; a mount reads them through /proc.
    sources = {path: os.open(path, os.O_PATH) for path in _outermost(shown) if path not in links}
    views = {path: os.path.isdir(path) for path in sources}
    system.mount("tmpfs", SCRATCH, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "mode=755,size=1m")
    os.makedirs(SCRATCH + SCRATCH)
    for path, descriptor in sources.items():
        _show(SCRATCH + path, descriptor, is_folder=views[path], writable=path in (*DEVICES, "/proc"))
        os.close(descriptor)
    for path, target in links.items():
        if not os.path.lexists(SCRATCH + path):
            os.makedirs(os.path.dirname(SCRATCH + path), exist_ok=True)
            os.symlink(target, SCRATCH + path)
    system.enter_root(SCRATCH)
    system.mount("none", "/", None, system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | system.MS_NOSUID)


def _show(target: str, descriptor: int, is_folder: bool, writable: bool) -> None:
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        with open(target, "wb"):
            pass
    system.mount(f"/proc/self/fd/{descriptor}", target, None, system.MS_BIND | system.MS_REC)
    if not writable:
        kept = os.statvfs(target).f_flag
        flags = sum(flag for bit, flag in _KEPT_FLAGS.items() if kept & bit)
        flags |= system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | system.MS_NOSUID
        system.mount("none", target, None, flags)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Leaves out what lies inside another of the paths, and doubles."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{other.rstrip('/')}/") for other in kept):
            kept.append(path)
    return kept
