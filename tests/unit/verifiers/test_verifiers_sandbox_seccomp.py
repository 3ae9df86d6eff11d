import errno
import struct

import pytest

from grpo_jax.verifiers.sandbox import seccomp

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
REFUSED = 0x00050000 | errno.EPERM
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "read": 0,
        "socket": 41,
        "socketpair": 53,
        "clone": 56,
        "kill": 62,
        "fcntl": 72,
        "setsid": 112,
        "mount": 165,
    }
    | {"tgkill": 234, "prlimit64": 302, "memfd_create": 319, "io_uring_setup": 425, "clone3": 435, "ioctl": 16},
    "aarch64": {"read": 63, "socket": 198, "socketpair": 199, "clone": 220, "kill": 129, "fcntl": 25, "setsid": 157}
    | {
        "mount": 40,
        "tgkill": 131,
        "prlimit64": 261,
        "memfd_create": 279,
        "io_uring_setup": 425,
        "clone3": 435,
        "ioctl": 29,
    },
}


# chmod to fchmodat2, chown to fchownat, utime to utimensat, setxattr and removexattr with their like.
METADATA = {
    "x86_64": (90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 463, 466, 469),
    "aarch64": (52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 463, 466, 469),
}


def run(program: bytes, machine: str, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the filter returns, by the rules of classic BPF."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, ARCHITECTURE[machine], 0, *padded)
    code = list(struct.iter_unpack("HBBI", program))
    place, accumulator = 0, 0
    while True:
        operation, jump_true, jump_false, operand = code[place]
        place += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x06:
                return operand
            case 0x15:
                place += jump_true if accumulator == operand else jump_false
            case 0x35:
                place += jump_true if accumulator >= operand else jump_false
            case 0x45:
                place += jump_true if accumulator & operand else jump_false


@pytest.fixture(params=ARCHITECTURE)
def machine(request):
    return request.param


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_program_needs_is_allowed(machine, alone):
    program = seccomp.program(machine, alone, process_id=7)
    numbers = NUMBERS[machine]
    for name, arguments in {
        "read": (),
        "socketpair": (1, 1),
        "clone": (0x01200011,),
        "kill": (7, 9),
        "tgkill": (7, 7, 6),
        "prlimit64": (0,),
        "fcntl": (1, 3),
        "ioctl": (0, 0x5401),
    }.items():
        assert run(program, machine, numbers[name], arguments) == ALLOWED, name


@pytest.mark.parametrize("alone", [True, False])
def test_sockets_mounts_and_new_namespaces_are_refused(machine, alone):
    program = seccomp.program(machine, alone, process_id=7)
    numbers = NUMBERS[machine]
    for name in ("socket", "mount", "memfd_create", "io_uring_setup"):
        assert run(program, machine, numbers[name]) == REFUSED, name
    for namespace in (0x00020000, 0x10000000, 0x20000000, 0x40000000):
        assert run(program, machine, numbers["clone"], (namespace | 17,)) == REFUSED
    assert run(program, machine, numbers["clone3"]) == 0x00050000 | errno.ENOSYS
    for control in (0x5412, 0x40086602, 0x401C5820):
        assert run(program, machine, numbers["ioctl"], (0, control)) == REFUSED


@pytest.mark.parametrize("alone", [True, False])
def test_only_a_pair_of_unix_streams_is_made(machine, alone):
    program = seccomp.program(machine, alone, process_id=7)
    pairs = {(family, kind | flags) for family in (1, 2, 30) for kind in (1, 2, 3, 5) for flags in (0, 0x80000, 0x800)}
    made = {pair for pair in pairs if run(program, machine, NUMBERS[machine]["socketpair"], pair) == ALLOWED}
    assert made == {(1, 1), (1, 0x80001), (1, 0x801)}


@pytest.mark.parametrize("alone", [True, False])
def test_owners_modes_times_and_attributes_are_refused(machine, alone):
    program = seccomp.program(machine, alone, process_id=7)
    for number in METADATA[machine]:
        assert run(program, machine, number) == REFUSED, number


def test_among_other_processes_a_program_reaches_itself_only(machine):
    numbers = NUMBERS[machine]
    attempts = {"setsid": (), "kill": (8, 9), "tgkill": (8, 8, 9), "prlimit64": (8,), "fcntl": (1, 8)}
    for name, arguments in attempts.items():
        assert run(seccomp.program(machine, False, 7), machine, numbers[name], arguments) == REFUSED, name
        assert run(seccomp.program(machine, True, 7), machine, numbers[name], arguments) == ALLOWED, name


def test_another_abi_of_the_kernel_is_no_way_around(machine):
    program = seccomp.program(machine, True, 7)
    other = next(name for name in ARCHITECTURE if name != machine)
    assert run(program, other, 0) == KILLED
    assert run(program, machine, 0x40000000 | NUMBERS[machine]["socket"]) == KILLED


def test_an_unknown_machine_has_no_filter():
    with pytest.raises(OSError, match="no table of system calls for riscv64"):
        seccomp.program("riscv64", True, 7)
