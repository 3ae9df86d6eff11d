"""Sets up JAX before any test module imports it: eight CPU devices, strict broadcasting, one compilation cache.

Environment variables are set for what child processes should inherit too. The number of devices and strict
broadcasting are settings of this process alone, so that a child starts the way a user's process does.
"""

import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# Each xdist worker's NumPy would otherwise start as many threads as the machine has cores.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")

jaxtyping.install_import_hook("grpo_jax", "beartype.beartype")

# The first example compiles, so a deadline per example would measure XLA.
hypothesis.settings.register_profile("local", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

MOST_MAPPINGS = 20_000
"""Linux lets a process have 65,530; each compiled program takes some, and XLA aborts when there are no more."""


@pytest.fixture(autouse=True)
def compiled_programs_make_room():
    """Lets go of the programs of earlier tests before a long run has too many."""
    yield
    mappings = pathlib.Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
