"""The import contracts of pyproject.toml, checked without import-linter, and imports with packages blocked."""

import ast
import functools
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "grpo_jax"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
ENTRY_POINTS = {"train", "evaluate", "sample", "memory", "cost", "convert", "verify"}
ENGINES = {"grpo_jax.rollout.jax_engine", "grpo_jax.rollout.http_engine", "grpo_jax.rollout.scripted_engine"}
JAX_FREE = ("boxes", "config", "data", "foreign", "intervals", "records", "verifiers")


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(source: str, known: set[str]) -> set[str]:
    """Modules that a source text imports anywhere: inside functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in known else node.module)
    return found


@functools.cache
def import_graph() -> dict[str, set[str]]:
    known = set(MODULES)
    return {name: imports_of(path.read_text(encoding="utf-8"), known) for name, path in MODULES.items()}


def matches(name: str, pattern: str) -> bool:
    """Whether an import-linter expression names the module: * is one part, ** any number of parts."""
    regex = re.escape(pattern).replace(r"\*\*", r"[\w.]+").replace(r"\*", r"\w+")
    return re.fullmatch(regex, name) is not None


def inside(name: str, pattern: str) -> bool:
    """Whether the module or one of the packages that hold it is named by the expression."""
    parts = name.split(".")
    return any(matches(".".join(parts[:size]), pattern) for size in range(1, len(parts) + 1))


def allowed_graph(graph: dict[str, set[str]], ignored: list[str]) -> dict[str, set[str]]:
    pairs = [expression.split(" -> ") for expression in ignored]
    return {
        importer: {
            imported
            for imported in targets
            if not any(matches(importer, left) and matches(imported, right) for left, right in pairs)
        }
        for importer, targets in graph.items()
    }


def layer_violations(graph: dict[str, set[str]], contract: dict) -> list[str]:
    graph = allowed_graph(graph, contract.get("ignore_imports", []))
    ranks = {
        part.strip(" ()"): rank for rank, layer in enumerate(contract["layers"]) for part in re.split(r"[|:]", layer)
    }
    containers = {name for name in graph for pattern in contract["containers"] if matches(name, pattern)}

    def placed(name: str, container: str) -> str | None:
        return name.removeprefix(f"{container}.").split(".")[0] if name.startswith(f"{container}.") else None

    found = []
    for container in sorted(containers):
        for importer, targets in graph.items():
            source = placed(importer, container)
            if source is None:
                continue
            if source not in ranks:
                found += [f"{importer} is in no layer"] if contract.get("exhaustive") else []
                continue
            for imported in targets:
                target = placed(imported, container)
                if target in ranks and target != source and ranks[target] <= ranks[source]:
                    found.append(f"{importer} -> {imported}")
    return sorted(found)


def forbidden_violations(graph: dict[str, set[str]], contract: dict) -> list[str]:
    graph = allowed_graph(graph, contract.get("ignore_imports", []))
    found = []
    for start in graph:
        if not any(inside(start, pattern) for pattern in contract["source_modules"]):
            continue
        seen, waiting = {start}, [start]
        while waiting:
            importer = waiting.pop()
            for imported in graph.get(importer, set()) - seen:
                seen.add(imported)
                waiting.append(imported)
                if any(inside(imported, pattern) for pattern in contract["forbidden_modules"]):
                    found.append(f"{start} reaches {imported} (imported by {importer})")
    return sorted(found)


CHECKS = {"layers": layer_violations, "forbidden": forbidden_violations}


@pytest.mark.parametrize("contract", SETTINGS["contracts"], ids=lambda contract: contract["name"])
def test_the_package_keeps_the_contract(contract):
    assert CHECKS[contract["type"]](import_graph(), contract) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("grpo_jax.records", "grpo_jax.config"),
        ("grpo_jax.data.tasks", "grpo_jax.verifiers.base"),
        ("grpo_jax.io.metrics", "grpo_jax.training.loop"),
        ("grpo_jax.algorithms.grpo", "grpo_jax.algorithms.ppo"),
        ("grpo_jax.training.ppo", "grpo_jax.training.grpo"),
        ("grpo_jax.algorithms.kl", "optax"),
        ("grpo_jax.verifiers.pool", "jax.numpy"),
        ("grpo_jax.io.report", "ml_collections.config_dict"),
        ("grpo_jax.models.hf", "transformers"),
        ("grpo_jax.training.collect", "grpo_jax.rollout.jax_engine"),
        ("grpo_jax.surprise", "math"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(importer, imported):
    graph = {"grpo_jax": set(), "grpo_jax.algorithms": set(), "grpo_jax.training": set(), importer: {imported}}
    graph |= {imported: set()} if imported.startswith("grpo_jax.") else {}
    assert any(CHECKS[contract["type"]](graph, contract) for contract in SETTINGS["contracts"])


def test_imports_are_found_wherever_they_stand():
    source = "def f():\n    from grpo_jax.rollout import engine, sampling\n    import jax.numpy as jnp\n"
    assert imports_of(source, {"grpo_jax.rollout.engine"}) == {
        "grpo_jax.rollout",
        "grpo_jax.rollout.engine",
        "jax.numpy",
    }


def test_concrete_engines_are_imported_by_entry_points_only():
    allowed = ENTRY_POINTS | {"forensics", "rollout"}
    importers = {
        name
        for name, targets in import_graph().items()
        if targets & ENGINES and name.split(".")[1:2] not in [[part] for part in allowed]
    }
    assert importers == set()


IMPORT_WITH_BLOCKED = """
import importlib, sys

blocked, names = sys.argv[1].split(","), sys.argv[2].split(",")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)

sys.meta_path.insert(0, Blocker())
for name in names:
    importlib.import_module(name)
print(len(names), "imported")
"""


def import_with_blocked(blocked: tuple[str, ...], names: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMPORT_WITH_BLOCKED, ",".join(blocked), ",".join(names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_host_modules_import_without_jax():
    names = [name for name in MODULES if name.split(".")[1:2] in [[part] for part in JAX_FREE]]
    assert {"grpo_jax.config", "grpo_jax.records"} <= set(names)
    done = import_with_blocked(("chex", "flax", "jax", "jaxlib", "optax", "orbax"), names)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(names)} imported"


def test_every_module_imports_without_torch_and_transformers():
    done = import_with_blocked(("torch", "transformers"), list(MODULES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(MODULES)} imported"


def test_a_blocked_package_cannot_be_imported():
    done = import_with_blocked(("jax",), ["jax.numpy"])
    assert done.returncode != 0
    assert "No module named 'jax' (blocked)" in done.stderr
