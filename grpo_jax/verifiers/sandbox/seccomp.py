"""A seccomp filter that refuses what a verified program has no need of: sockets, tracing, mounts, file modes.

The filter is a list of classic BPF instructions, each (code, jump if true, jump if false, operand).
"""

import ctypes
import errno
import functools
import struct

from grpo_jax.verifiers.sandbox import system

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER_OFFSET, _MACHINE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_MODE_FILTER = 2
_AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_OTHER_ABI = 0x4000_0000

# Numbers on x86_64 and aarch64; None where a machine lacks the call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # The network, and unix sockets by path, which Landlock lets through.
    "socket": (41, 198),
    "connect": (42, 203),
    "accept": (43, 202),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept4": (288, 242),
    "sendmmsg": (307, 269),
    # It would open sockets past this filter.
    "io_uring_setup": (425, 425),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # What Landlock does not cover: owners, modes, times and attributes of files, and news of what happens to them.
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "inotify_add_watch": (254, 27),
    # Objects that outlive a process, and memory that no limit counts.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Parts of the kernel that have often been broken into, or that change the machine.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
# Without a pid namespace a program must stay in its process group, by which it is ended, and leave others alone.
_REFUSED_AMONG_OTHERS: dict[str, tuple[int | None, int | None]] = {
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
# A pair of datagram sockets sends to any path; event loops need a pair of streams, which sends to its other end alone.
_SOCKETPAIR, _AF_UNIX, _SOCK_STREAM = (53, 199), 1, 1
_SOCK_NONBLOCK, _SOCK_CLOEXEC = 0x800, 0x8_0000
_STREAMS = tuple(_SOCK_STREAM | block | close for block in (0, _SOCK_NONBLOCK) for close in (0, _SOCK_CLOEXEC))
_CLONE, _CLONE3, _FCNTL, _IOCTL = (56, 220), (435, 435), (72, 25), (16, 29)
_KILL_CALL, _TGKILL, _PRLIMIT = (62, 129), (234, 131), (302, 261)
_NEW_NAMESPACES = (
    system.CLONE_NEWNS
    | system.CLONE_NEWUTS
    | system.CLONE_NEWIPC
    | system.CLONE_NEWUSER
    | system.CLONE_NEWPID
    | system.CLONE_NEWNET
    | system.CLONE_NEWCGROUP
)
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_FIOSETOWN, _SIOCSPGRP, _TIOCSTI = 0x8901, 0x8902, 0x5412
# Attributes of a file that is open for reading.
_FS_IOC_SETFLAGS, _FS_IOC32_SETFLAGS, _FS_IOC_FSSETXATTR = 0x4008_6602, 0x4004_6602, 0x401C_5820
_REFUSED_CONTROLS = (_FIOSETOWN, _SIOCSPGRP, _TIOCSTI, _FS_IOC_SETFLAGS, _FS_IOC32_SETFLAGS, _FS_IOC_FSSETXATTR)


def _refuse(code: int = errno.EPERM) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ERRNO | code


def _when(call: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Runs the body for one call; it must leave the call's number loaded if it does not return."""
    return [(_EQUAL, 0, len(body), call), *body]


def _load_argument(index: int) -> tuple[int, int, int, int]:
    return _LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index


_RELOAD = (_LOAD, 0, 0, _NUMBER_OFFSET)


def _refuse_values(call: int, index: int, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    tests = [test for value in values for test in ((_EQUAL, 0, 1, value), _refuse())]
    return _when(call, [_load_argument(index), *tests, _RELOAD])


def _allow_values(call: int, index: int, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return _when(call, [_load_argument(index), *tests, _refuse(), _RELOAD])


@functools.cache
def program(machine: str, alone: bool, process_id: int) -> bytes:
    """Builds the filter.

    Args:
        machine: ``x86_64`` or ``aarch64``.
        alone: Whether a pid namespace hides all other processes.
        process_id: The process that is filtered; the only one that it may signal unless it is alone.

    Returns:
        The instructions as the kernel reads them.

    Raises:
        OSError: if the machine's system calls are not known here.
    """
    if machine not in _AUDIT:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {machine}")
    column = _COLUMN[machine]
    code = [
        (_LOAD, 0, 0, _MACHINE_OFFSET),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        _RELOAD,
        (_AT_LEAST, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, _KILL),
    ]
    refused = _REFUSED if alone else _REFUSED | _REFUSED_AMONG_OTHERS
    for numbers in refused.values():
        number = numbers[column]
        if number is not None:
            code += _when(number, [_refuse()])
    # The flags of clone3 lie in memory, where a filter cannot look; the C library then falls back to clone.
    code += _when(_CLONE3[column], [_refuse(errno.ENOSYS)])
    code += _when(_CLONE[column], [_load_argument(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(), _RELOAD])
    code += _refuse_values(_IOCTL[column], 1, _REFUSED_CONTROLS)
    code += _allow_values(_SOCKETPAIR[column], 0, (_AF_UNIX,))
    code += _allow_values(_SOCKETPAIR[column], 1, _STREAMS)
    if not alone:
        code += _refuse_values(_FCNTL[column], 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX))
        code += _allow_values(_KILL_CALL[column], 0, (process_id,))
        code += _allow_values(_TGKILL[column], 0, (process_id,))
        code += _allow_values(_PRLIMIT[column], 0, (0, process_id))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install(alone: bool, process_id: int) -> None:
    """Puts this process and all its later children under the filter, for good.

    Args:
        alone: Whether a pid namespace hides all other processes.
        process_id: This process's id.

    Raises:
        OSError: if the kernel refuses; ``PR_SET_NO_NEW_PRIVS`` must be set before.
    """
    code = program(system.MACHINE, alone, 0 if alone else process_id)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a 16-bit count of 8-byte instructions, then a pointer on its own boundary.
    header = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    system.prctl(system.PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(header, len(header)))
