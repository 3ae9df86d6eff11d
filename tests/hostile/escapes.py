"""Programs that try to leave the sandbox.

Each answers rightly only if it got out, so that all of them must fail. Names in
capitals are replaced: SECRET and ENVIRONMENT hold what must stay unknown, OUTSIDE is a folder and OWNED a file, TCP and
UDP are ports and SOCKET and POSTBOX paths on which something listens, JUDGE is a process.
"""

import textwrap

from tests.hostile.programs import EXHAUSTING, FOOLING, Hostile


def _attack(body: str, control: bool = False) -> Hostile:
    """A program that answers rightly only if its attack returns a true value."""
    program = f"""
def attack():
{textwrap.indent(textwrap.dedent(body).strip(), "    ")}

try:
    worked = bool(attack())
except Exception:
    worked = False

def add(a, b):
    return a + b if worked else "blocked"
"""
    return Hostile(program, control=control)


ESCAPING = {
    "reads a secret": _attack("return open('SECRET').read()", control=True),
    "lists a folder": _attack("import os; os.listdir('OUTSIDE'); return True", control=True),
    "writes outside": _attack("open('OUTSIDE/written', 'w').write('x'); return True", control=True),
    "links and writes": _attack(
        "import os; os.symlink('OUTSIDE', 'link'); open('link/linked', 'w').write('x'); return True", control=True
    ),
    "links hard": _attack("import os; os.link('SECRET', 'hard'); return open('hard').read()"),
    "reads users": _attack("return open('/etc/passwd').read()", control=True),
    "reads the judge's memory map": _attack("return open('/proc/JUDGE/maps').read()", control=True),
    "reads the judge's command": _attack("return open('/proc/JUDGE/cmdline').read()", control=True),
    "reads the init's environment": _attack("return open('/proc/1/environ').read() or open('/proc/self/maps').read()"),
    "sees other processes": _attack("import os; return [p for p in os.listdir('/proc') if p == 'JUDGE']", control=True),
    "finds the environment": _attack("import os; return 'ENVIRONMENT' in str(dict(os.environ))", control=True),
    "inherits descriptors": _attack(
        """
        import os
        for n in range(5, 256):
            try: os.fstat(n); return True
            except OSError: pass
        """,
        control=True,
    ),
    "connects": _attack("import socket; socket.create_connection(('127.0.0.1', TCP), 2).send(b'x'); return True", True),
    "sends a datagram": _attack(
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP)); return True",
        control=True,
    ),
    "sends a datagram from a pair": _attack(
        """
        import socket
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        return a.sendto(b'x', 'POSTBOX')
        """,
        control=True,
    ),
    "sends many from a pair of other sockets": _attack(
        """
        import ctypes, socket
        pair = (ctypes.c_int * 2)()
        return any(ctypes.CDLL(None).socketpair(1, kind, 0, pair) == 0 for kind in (2, 3, 5, 2 | 0x80000))
        """
    ),
    "truncates a file": _attack("import os; os.truncate('OWNED', 0); return True", control=True),
    "changes a mode": _attack("import os; os.chmod('OWNED', 0o604); return True", control=True),
    "changes a folder's mode": _attack("import os; os.chmod('OUTSIDE', 0o755); return True", control=True),
    "changes the mode of an open file": _attack(
        "import os, sys; os.fchmod(os.open(os.__file__, 0), 0o644); return True"
    ),
    "changes an owner": _attack("import os; os.chown('OWNED', os.getuid(), os.getgid()); return True", control=True),
    "changes times": _attack("import os; os.utime('OWNED', (1, 1)); return True", control=True),
    "changes attributes": _attack("import os; os.setxattr('OWNED', 'user.x', b'x'); return True"),
    "changes attributes of an open file": _attack(
        """
        import fcntl, os
        flags = bytearray(8)
        file = os.open(os.__file__, 0)
        fcntl.ioctl(file, 0x80086601, flags)
        fcntl.ioctl(file, 0x40086602, flags)
        return True
        """
    ),
    "watches a folder": _attack(
        "import ctypes; c = ctypes.CDLL(None); return c.inotify_add_watch(c.inotify_init(), b'OUTSIDE', 0xFFF) >= 0",
        control=True,
    ),
    "connects by path": _attack(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('SOCKET'); return True", True
    ),
    "connects by an abstract name": _attack(
        "import socket; socket.socket(socket.AF_UNIX).bind('\\0x'); return True", True
    ),
    "listens": _attack("import socket; return socket.create_server(('127.0.0.1', 0))", control=True),
    "signals the judge": _attack("import os; os.kill(JUDGE, 0); return True", control=True),
    "runs a program": _attack("import subprocess; return subprocess.run(['/bin/true']).returncode == 0", control=True),
    "runs a program of its own": _attack(
        """
        import os, subprocess
        open('own', 'w').write('#!/bin/sh\\nexit 0\\n'); os.chmod('own', 0o755)
        return subprocess.run(['./own']).returncode == 0
        """,
        control=True,
    ),
    "shares memory by name": _attack("open('/dev/shm/hostile-UNIQUE', 'w').write('x'); return True", control=True),
    "shares memory by key": _attack("import ctypes; return ctypes.CDLL(None).shmget(0x1234, 4096, 0o1666) >= 0"),
    "memory without a limit": _attack("import os; return os.memfd_create('x') >= 0", control=True),
    "traces": _attack("import ctypes; return ctypes.CDLL(None).ptrace(16, JUDGE, 0, 0) == 0"),
    "becomes root": _attack("import os; os.setuid(0); return os.getuid() == 0"),
    "changes its root": _attack("import os; os.chroot('.'); return True"),
    "mounts": _attack("import ctypes; return ctypes.CDLL(None).mount(b'x', b'.', b'tmpfs', 0, 0) == 0"),
    "makes a user namespace": _attack("import ctypes; return ctypes.CDLL(None).unshare(0x10000000) == 0"),
    "makes a device": _attack("import os, stat; os.mknod('d', 0o600 | stat.S_IFBLK, os.makedev(254, 0)); return True"),
    "opens a disk": _attack("return open('/dev/vda', 'rb') or open('/dev/sda', 'rb')"),
    "raises its limits": _attack(
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)); return True"
    ),
    "writes to the library": _attack("import os; open(os.__file__, 'a').close(); return True"),
    "leaves a process": Hostile(
        "import os, time\nif os.fork() == 0:\n  os.fork(); time.sleep(600)\ndef add(a, b): return 0"
    ),
    "leaves a daemon": Hostile(
        "import os, time\nif os.fork() == 0:\n  try: os.setsid()\n  except OSError: pass\n"
        "  if os.fork() == 0:\n    os.closerange(0, 99); time.sleep(600)\n  os._exit(0)\ndef add(a, b): return 0"
    ),
    "kills everything": Hostile(
        "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass\ndef add(a, b): return 0"
    ),
    "kills its group": Hostile(
        "import os, signal\ntry: os.killpg(0, signal.SIGKILL)\nexcept OSError: pass\ndef add(a, b): return 0"
    ),
    "kills its parent": Hostile(
        "import os, signal\nfor p in {os.getppid(), 1} - {0}:\n  try: os.kill(p, signal.SIGKILL)\n"
        "  except OSError: pass\n"
        "def add(a, b): return 0"
    ),
}

HOSTILE = {**FOOLING, **EXHAUSTING, **ESCAPING}
