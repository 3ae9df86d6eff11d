"""Sandbox program that runs a model's program as a script, with its standard streams."""

import atexit
import sys
import traceback

from grpo_jax.verifiers.code import loading


def main() -> int:
    """Runs the file of the program as ``__main__`` and ends as an interpreter would.

    Returns:
        The exit code.
    """
    with open(loading.FILE_NAME, encoding="utf-8", errors="surrogatepass", newline="") as file:
        source = file.read()
    loading.clear_traces()
    code = _run(source)
    if "threading" in sys.modules:
        threading = sys.modules["threading"]
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = code or 120
    return code


def _run(source: str) -> int:
    try:
        loading.load(source, "__main__")
    except loading.SyntaxFault as error:
        print(f"SyntaxError: {error}", file=sys.stderr)
        return 1
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return (leave.code or 0) & 0xFF
        print(leave.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()
    return 0
