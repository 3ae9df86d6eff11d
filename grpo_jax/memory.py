"""Shows what a run needs in memory: by rule, from shapes, and compiled for accelerators that need not be here.

python -m grpo_jax.memory --model llama3-70b --algorithm grpo|ppo --devices 64 --tokens 16384
                          [--compile --topology h100:8x8] [--search] [--json] [--png FILE]
python -m grpo_jax.memory --config FILE.py[:ARGUMENT] [--config.KEY=VALUE ...] [--devices 8] [--compile ...]

  --model NAME          a published model in mixed precision: bytes by rule, and which accelerators hold them
  --algorithm A         grpo (default), ppo: with a critic as large as the policy
  --tokens N            of a prompt and its completion, about half each (default: 4096)
  --rows_per_shard N    completions of a micro-batch on each data x fsdp x expert shard (default: 1)
  --micro_batches N     micro-batches of the compiled update (default: 1 with --model, else the configuration's)
  --parameters N        number of parameters that bytes by rule are of (default: what the model's name says)
  --weights_dtype, --master_dtype, --moments_dtype, --gradients_dtype, --reference_dtype
                        float32, bfloat16, float8_e4m3fn, int8, none: for bytes by rule (compiled ones: --config.KEY)
  --config FILE.py      as for grpo_jax.train; weights, tokenizer and problems need not be on this machine: the
                        architecture of a published model is then known from the name of its folder
  --config.KEY=VALUE    changes the run, that of --model too
  --devices N           devices of the mesh (default: those of the topology, else 8)
  --mesh AXIS=SIZE,...  with --model (default: tensor within a host, as far as the key and value heads go; fsdp)
  --compile             compile update, reference pass, prefill and decode loop, and show what each needs
  --topology T          h100:8x8 (hosts x devices; h200, a100, a100-40 too), v5p:4x4x4, v6e:8x8, v5e:4x4, cpu:8
  --search              compile updates to find the longest context, the most rows, the fewest devices that fit
  --search_over A,B     some of tokens, rows, devices (default: all three)
  --json                JSON and nothing else on standard output
  --png FILE            a bar chart

Exit status: 0 done, 2 bad command line or configuration, or a program that no compiler could place.
"""

import contextlib
import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from absl import flags
from rich.console import Console

from grpo_jax import cli
from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.footprint import MOMENTS, PARTS, compile_programs, held_bytes, lower_programs, models
from grpo_jax.forensics import compiled as compiled_lib
from grpo_jax.forensics import scenario, search, static, tables
from grpo_jax.forensics.hardware import CPU, Topology, parse_topology
from grpo_jax.models import decoder
from grpo_jax.models.presets import preset
from grpo_jax.models.spec import ModelSpec
from grpo_jax.training.abstract import fitted, lower_run
from grpo_jax.training.trainer import RECIPES

DEVICES = 8
"""Devices of a mesh where nothing says how many."""

MOST = 2**24
"""Tokens, rows or devices; beyond them nothing would ever be lowered."""

MOST_IMITATED = 4096
"""Devices on which a configuration is lowered without a topology: each takes some of this machine."""

MOST_PARAMETERS = 1e18
"""Of a model that is reckoned by rule."""

_OF_A_MODEL = (
    *("algorithm", "tokens", "rows_per_shard", "parameters", "mesh", "search", "search_over"),
    *(f"{field.name}_dtype" for field in dataclasses.fields(static.Dtypes)),
)
_OF_A_COMPILER = ("topology", "micro_batches")


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    command = cli.parse(sys.argv, _flags(), config_required=False)
    given = command.flags
    topology = _topology(command)
    if given.png:
        cli.check_writable(Path(given.png), "--png")
    jax.config.update("jax_platforms", "cpu")
    if topology.hardware is CPU and topology.devices > MOST_IMITATED and not given.model:
        raise ConfigError(f"--devices: got {topology.devices}, wanted at most {MOST_IMITATED}, which are imitated.")
    if given.compile or given.search or not given.model:
        compiled_lib.prepare(topology)
    report: dict[str, Any] = {"run": given.model or command.name, "devices": topology.devices}
    config = command.config
    if given.model:
        spec = _spec(given.model)
        config = _of_model(command, spec, topology, given.tokens, given.rows_per_shard)
        report |= {"algorithm": given.algorithm, "tokens": given.tokens, "static": _static(given, spec, topology)}
    with _mesh_named_as_given(given):
        if given.compile:
            report["compiled"] = compile_run(config, topology, given.micro_batches or (1 if given.model else None))
        elif not given.model:
            report["held_bytes"] = held_bytes(config, topology.devices)
        if given.search:
            report["search"] = _searched(command, spec, topology)
    _show(report, given)
    return 0


@contextlib.contextmanager
def _mesh_named_as_given(given: flags.FlagValues) -> Iterator[None]:
    """Errors name the flag that the mesh was given by, which beside ``--model`` is no key of a configuration."""
    try:
        yield
    except ConfigError as error:
        if not given.model:
            raise
        named = re.sub(r"\bconfig\.mesh\.(\w+)", r"--mesh \1", str(error)).replace("config.mesh", "--mesh")
        raise ConfigError(named) from error


def compile_run(config: RunConfig, topology: Topology, micro_batches: int | None = None) -> dict[str, Any]:
    """Compiles a run's programs for a topology.

    Args:
        config: The run.
        topology: What it is for.
        micro_batches: See ``lower_step``.

    Returns:
        Figures of the update, and of the other programs by their names (``tables.PROGRAMS``).

    Raises:
        ConfigError: for a configuration that does not fit together, or not on this topology.
    """
    lowered = lower_programs(config, compiled_lib.described_devices(topology), micro_batches)
    found = compile_programs(lowered, topology)
    run = lowered.run
    state, batch = run.step.state, run.step.batch
    components = {
        name: {"parameters": model.params, "optimizer": model.optimizer, "reference": model.reference}
        for name, model in models(state).items()
    } | {"batch": {"rows": batch}}
    sizes = lambda size: {  # noqa: E731
        name: {part: size(tree) for part, tree in of.items() if tree is not None} for name, of in components.items()
    }
    return {
        "topology": topology.name,
        "mesh": dict(run.mesh.shape),
        "micro_batches": jax.tree.leaves(batch.micro_batches)[0].shape[0],
        "components_bytes": sizes(static.device_bytes),
        "host_components_bytes": sizes(static.host_bytes),
        **compiled_lib.figures(found, topology),
    }


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, default in {"devices": None, "tokens": 4096, "rows_per_shard": 1, "micro_batches": None}.items():
        least = 2 if name == "tokens" else 1  # one of the prompt, one of the completion
        flags.DEFINE_integer(name, default, name, lower_bound=least, upper_bound=MOST, flag_values=values)
    for name in ("model", "mesh", "topology", "png"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    for name in ("compile", "search", "json"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    flags.DEFINE_float("parameters", None, "Number of parameters.", lower_bound=1, flag_values=values)
    flags.DEFINE_enum("algorithm", "grpo", list(RECIPES), "Algorithm.", flag_values=values)
    flags.DEFINE_list("search_over", None, "What to search for.", flag_values=values)
    for field in dataclasses.fields(static.Dtypes):
        flags.DEFINE_enum(f"{field.name}_dtype", None, list(static.DTYPE_BYTES), "A dtype.", flag_values=values)
    return values


def _topology(command: cli.CommandLine) -> Topology:
    """What the command line is about, which is refused where it says it by half, twice, or for nothing."""
    given = command.flags
    if bool(command.name) == bool(given.model):
        raise ConfigError("--model, --config: got both or none, wanted one of them. --help shows all flags.")
    compiles = given.compile or given.search
    if compiles and not given.topology:
        raise ConfigError("--topology: got none beside --compile or --search, wanted one such as h100:8x8.")
    for unread, needed, names in (
        (not given.model, "--model", _OF_A_MODEL),
        (not compiles, "--compile or --search", _OF_A_COMPILER),
        (not given.search, "--search", ("search_over",)),
    ):
        for name in names:
            if unread and given[name].present:
                raise ConfigError(f"--{name}: got it without {needed}, wanted both: nothing else reads it.")
    if not given.topology:
        return Topology(CPU, (given.devices or DEVICES,))
    topology = parse_topology(given.topology)
    if given.devices not in (None, topology.devices):
        raise ConfigError(f"--devices: got {given.devices}, wanted the {topology.devices} of {topology.name}.")
    return topology


def _spec(name: str) -> ModelSpec:
    try:
        return preset(name)
    except ValueError as error:
        raise ConfigError(f"--model: {error}") from error


def _of_model(command: cli.CommandLine, spec: ModelSpec, topology: Topology, tokens: int, rows: int) -> RunConfig:
    given = command.flags
    if any(key.startswith("mesh.") for key in command.overrides):
        raise ConfigError("--config.mesh: got it beside --model, wanted --mesh AXIS=SIZE,... which is read first.")
    mesh = scenario.default_mesh(spec, topology.devices, topology.devices_per_host)
    if given.mesh:
        mesh = scenario.parse_mesh(given.mesh)
        if math.prod(mesh.values()) != topology.devices:
            wanted = f"sizes whose product is the number of devices, {topology.devices}"
            raise ConfigError(f"--mesh: got {given.mesh}, wanted {wanted}.")
    values = scenario.scenario(given.model, given.algorithm, tokens, mesh, rows)
    return scenario.with_defaults(command.config, values, command.overrides)


def _static(given: flags.FlagValues, spec: ModelSpec, topology: Topology) -> dict[str, Any]:
    if given.parameters is not None and not given.parameters < MOST_PARAMETERS:
        raise ConfigError(f"--parameters: got {given.parameters}, wanted a number below {MOST_PARAMETERS:g}.")
    shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    counted = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    chosen = {field.name: given[f"{field.name}_dtype"].value for field in dataclasses.fields(static.Dtypes)}
    dtypes = scenario.dtypes_of(given.model, chosen)
    return scenario.static_figures(given.model, counted, given.algorithm, topology.devices, given.parameters, dtypes)


def _searched(command: cli.CommandLine, spec: ModelSpec, topology: Topology) -> dict[str, Any]:
    given = command.flags

    def lowered(point: search.Point) -> search.Candidate:
        config = _of_model(command, spec, *point)
        run = lower_run(config, compiled_lib.described_devices(point.topology), given.micro_batches or 1)
        return search.Candidate(run.step.update, static.device_bytes((run.step.state, run.step.batch)))

    def divides(topology: Topology) -> bool:
        try:
            fitted(_of_model(command, spec, topology, *start[1:]), compiled_lib.described_devices(topology))
        except ConfigError:
            return False
        return True

    start = search.Point(topology, given.tokens, given.rows_per_shard)
    return search.searched(given.search_over, start, divides, lowered)


def _show(report: dict[str, Any], given: flags.FlagValues) -> None:
    if given.png:
        tables.save_chart(report, Path(given.png))
    if given.json:
        print(json.dumps(report, indent=2))
        return
    if "held_bytes" in report:
        heading = f"GiB on each of {report['devices']} devices"
        print(static.markdown_table({report["run"]: report["held_bytes"]}, (*PARTS, *MOMENTS), heading))
    console = Console(width=max(Console().width, tables.WIDTH))
    for table in tables.report_tables(report):
        console.print(table)


if __name__ == "__main__":
    cli.run(main)
