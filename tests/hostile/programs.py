"""Programs that try to fool the judge or to use the machine up."""

import dataclasses
import textwrap

CALL = {"style": "call", "entry": "add", "cases": [[[1, 2], 3], [[0, 0], 0], [[10**12, 1], 10**12 + 1]]}
NONE = {"style": "call", "entry": "add", "cases": [[[1, 2], None]]}
UNITTEST = {
    "style": "unittest",
    "code": textwrap.dedent("""
        import unittest
        from solution import *

        class T(unittest.TestCase):
            def test_a(self):
                self.assertEqual(add(1, 2), 3)
                self.assertTrue(all([add(0, 0) == 0, add(2, 2) == 4]))
        """),
}
ASSERTS = {
    "style": "asserts",
    "code": "import math\nassert add(1, 2) == 3\nassert math.isclose(add(0.5, 1), 1.5)\nassert all([add(2, 2) == 4])\n",
}
STARRED = {
    "style": "asserts",
    "code": "from math import *\nfrom solution import *\nassert isclose(add(1, 2), 3)\n",
}
MAPPED = {"style": "asserts", "code": "assert all(map(lambda x: add(x, 1) == x + 1, [1, 2]))\n"}
CHECKED = {
    "style": "asserts",
    "entry": "add",
    "code": "def check(candidate):\n  assert candidate(1, 2) == 3\nprint('start')\nassert True\n",
}
STDIN = {"style": "stdin", "cases": [["1 2\n", "3\n"], ["5 6\n", "11\n"]]}


@dataclasses.dataclass(frozen=True)
class Hostile:
    """A hostile program.

    Attributes:
        text: The program.
        tests: What it is judged by.
        control: Whether it succeeds, and does no harm, without a sandbox: then a test runs it so, to see that it can.
    """

    text: str
    tests: dict = dataclasses.field(default_factory=lambda: CALL)
    control: bool = False


FOOLING = {
    "exit at import": Hostile("import sys; sys.exit(0)"),
    "exit in a call": Hostile("def add(a, b): raise SystemExit(0)", UNITTEST),
    "hard exit": Hostile("import os; os._exit(0)"),
    "exit at exit": Hostile("import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0"),
    "exit of a script": Hostile("import os; os._exit(0)", STDIN),
    "another program": Hostile("import os; os.execv('/bin/true', ['true'])"),
    "printed marks": Hostile("print('OK 3 passed')\nprint('{\"value\": 3}')\nimport os; os._exit(0)"),
    "an exception for None": Hostile("def add(a, b): raise ValueError", NONE),
    "equal to everything": Hostile("class I(int):\n  def __eq__(s, o): return True\ndef add(a, b): return I(0)"),
    "equal to everything in asserts": Hostile(
        "class E:\n  def __eq__(s, o): return True\n  def __sub__(s, o): return 0\ndef add(a, b): return E()", ASSERTS
    ),
    "reflected equality": Hostile(
        "class E:\n  def __eq__(s, o): return True\n  def __req__(s, o): return True\ndef add(a, b): return E()",
        UNITTEST,
    ),
    "disguised class": Hostile(
        "class E:\n  __class__ = int\n  def __eq__(s, o): return True\ndef add(a, b): return E()"
    ),
    "patched unittest": Hostile(
        "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a, **k: None\n"
        "unittest.TestResult.wasSuccessful = lambda s: True\ndef add(a, b): return 0",
        UNITTEST,
    ),
    "a hook for pytest": Hostile(
        "open('conftest.py', 'w').write('def pytest_runtest_makereport(item, call): item.outcome = \"passed\"')\n"
        "def add(a, b): return 0",
        UNITTEST,
    ),
    "its own all": Hostile("def all(x): return True\ndef add(a, b): return 3", ASSERTS),
    "its own all by a star": Hostile(
        "def all(x): return True\ndef assertEqual(*a): pass\nclass unittest: pass\ndef add(a, b): return 3", UNITTEST
    ),
    "its own math": Hostile(
        "class math:\n  @staticmethod\n  def isclose(a, b): return True\ndef add(a, b): return 3", ASSERTS
    ),
    "its own isclose instead of a starred one": Hostile(
        "def isclose(a, b): return True\ndef add(a, b): return 0", STARRED
    ),
    "an end of every loop": Hostile("def add(a, b): raise StopIteration", MAPPED),
    "a class of its own that ends every loop": Hostile("class E(StopIteration): pass\ndef add(a, b): raise E", MAPPED),
    "wrong where only check looks": Hostile("def add(a, b): return 0", CHECKED),
    "an exception as an argument": Hostile(
        "class add(Exception): pass\ndef mul(a, b): return 9",
        {"style": "asserts", "code": "assert mul(add(1, 2), 3) == 9"},
    ),
    "a method as an argument": Hostile(
        "def add(a, b): return ''\ndef mul(a, b): return 9",
        {"style": "asserts", "code": "assert mul(add(1, 2).count, 3) == 9"},
    ),
    "skipped": Hostile("import unittest\ndef add(a, b): raise unittest.SkipTest('no')", UNITTEST),
    "patched builtins": Hostile(
        "import builtins\nbuiltins.len = lambda x: 0\nbuiltins.all = lambda x: True\nbuiltins.zip = lambda *a: ()\n"
        "builtins.type = lambda x: int\nbuiltins.repr = lambda x: '3'\ndef add(a, b): return 0"
    ),
    "patched json": Hostile(
        "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\njson.loads = lambda *a, **k: {}\n"
        "def add(a, b): return 0"
    ),
    "its own replies": Hostile(
        'import os\nfor _ in range(9): os.write(4, b\'{"value": 0, "correct": true, "passed": true}\\n\')\n'
        "def add(a, b): return 0"
    ),
    "a reply that is no JSON": Hostile("import os\ndef add(a, b): os.write(4, b'NaN]\\n')"),
    "a deep reply": Hostile("import os\ndef add(a, b): os.write(4, b'[' * 500000 + b'\\n')"),
    "a long number": Hostile("import os\ndef add(a, b): os.write(4, b'{\"value\": ' + b'9' * 500000 + b'}\\n')"),
    "odd names": Hostile(
        'import os, time\nos.write(4, b\'{"names": {"add": [[]], "x y": 5}}\\n\')\ntime.sleep(1)', UNITTEST
    ),
    "a missing module": Hostile("def add(a, b): raise ModuleNotFoundError('x', name='x')", ASSERTS),
    "frames": Hostile(
        "import sys\ndef add(a, b):\n  f = sys._getframe()\n  while f:\n    for v in f.f_locals.values():\n"
        "      if isinstance(v, dict) and 'expected' in v: return v['expected']\n    f = f.f_back\n  return 0"
    ),
    "the heap": Hostile(
        "import gc\ndef add(a, b):\n  for o in gc.get_objects():\n"
        "    if isinstance(o, (list, tuple)) and len(o) == 2 and list(o[:1]) == [[a, b]]: return o[1]\n  return 0"
    ),
    "a pickle": Hostile(
        "import os\nclass P:\n  def __reduce__(s): return os.system, ('touch OUTSIDE/pickle',)\n"
        "def add(a, b): return P()"
    ),
    "an evil repr": Hostile(
        "class R:\n  def __repr__(s): raise SystemExit\n  __str__ = __repr__\ndef add(a, b): return R()", UNITTEST
    ),
    "an evil exception": Hostile(
        "class E(Exception):\n  def __str__(s): raise SystemExit(0)\ndef add(a, b): raise E", UNITTEST
    ),
    "another type": Hostile("def add(a, b): return True", {**CALL, "cases": [[[1, 0], 1]]}),
    "no function": Hostile("x = 1"),
    "nothing": Hostile("# nothing"),
    "a crash": Hostile("import ctypes\nctypes.string_at(0)"),
    "an abort": Hostile("import os\nos.abort()"),
    "a signal to itself": Hostile("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "endless recursion": Hostile("def add(a, b): return add(a, b)"),
    "deep syntax": Hostile("x = " + "(" * 5000 + ")" * 5000),
    "a null byte": Hostile("def add(a, b): return a + b\n\0"),
    "a cookie": Hostile("# -*- coding: utf-7 -*-\ndef add(a, b): return a + b\n+AAA\n"),
}

EXHAUSTING = {
    "a loop": Hostile("while True: pass"),
    "sleep": Hostile("import time\ndef add(a, b): time.sleep(10**6)"),
    "sleep in a script": Hostile("import time\ntime.sleep(10**6)", STDIN),
    "masked signals": Hostile(
        "import signal\nfor n in (signal.SIGALRM, signal.SIGTERM, signal.SIGXCPU): signal.signal(n, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\ndef add(a, b):\n  while True: pass"
    ),
    "one long step": Hostile("def add(a, b): return len(str(9 ** (9 ** 8)))"),
    "a slow pattern": Hostile("import re\ndef add(a, b): re.match('(a+)+$', 'a' * 40 + 'b'); return a + b"),
    "memory": Hostile("def add(a, b): s = 'x' * 10**11; return a + b"),
    "shared memory": Hostile(
        "import mmap\nm = []\nwhile True:\n  m.append(mmap.mmap(-1, 1 << 28))\n  m[-1].write(b'x' * (1 << 28))"
    ),
    "memory of many": Hostile(
        "import os, time\nfor _ in range(10):\n  if os.fork() == 0:\n    x = b'x' * (60 << 20)\n"
        "    time.sleep(60); os._exit(0)\n"
        "time.sleep(60)"
    ),
    "a full disk": Hostile("with open('fill', 'wb') as f:\n  while True: f.write(b'x' * (1 << 20))"),
    "output": Hostile("import sys\nwhile True: sys.stdout.write('x' * 10**6)", STDIN),
    "errors": Hostile("import sys\nwhile True: sys.stderr.write('x' * 10**6)", STDIN),
    "a large value": Hostile("def add(a, b): return 'x' * (100 << 20)"),
    "no line end": Hostile("import os\ndef add(a, b):\n  while True: os.write(4, b'x' * 65536)"),
    "forks": Hostile(
        "import os, time\nmade = 0\nfor _ in range(80):\n  try:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "    made += 1\n  except OSError: pass\ndef add(a, b): return a + b if made > 40 else made"
    ),
    "forks of forks": Hostile(
        "import os, time\nfor _ in range(6):\n  try: os.fork()\n  except OSError: pass\ntime.sleep(60)"
    ),
    "threads": Hostile(
        "import threading, time\nmade = 0\nfor _ in range(80):\n  try:\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); made += 1\n"
        "  except RuntimeError: pass\ndef add(a, b): return a + b if made > 40 else made"
    ),
    "deep folders": Hostile(
        "import os\nfor _ in range(1200):\n  try: os.mkdir('d'); os.chdir('d')\n  except OSError: break\n"
        "def add(a, b): return 0"
    ),
    "closed streams": Hostile("import os\nos.closerange(0, 64)\nimport time; time.sleep(60)"),
}
