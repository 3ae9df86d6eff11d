"""Programs compiled for accelerators that are not here, and what the compiler says that they need."""

import dataclasses
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import topologies

from grpo_jax.config import ConfigError
from grpo_jax.forensics.hardware import Topology
from grpo_jax.forensics.programs import Program


class DoesNotFit(ConfigError):  # noqa: N818
    """The compiler found no way to place a program in the memory that there is."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What a compiled program needs on each device.

    Attributes:
        seconds: Wall time of compiling.
        argument_bytes: What it is given.
        output_bytes: What it gives back.
        alias_bytes: How much of that lies where arguments lay.
        temp_bytes: What it needs besides while it runs.
        host_argument_bytes: What it is given in the host's memory.
        host_output_bytes: What it gives back there.
        host_alias_bytes: How much of that lies where arguments lay.
        host_temp_bytes: What it needs there besides.
        flops: Of its matrix products.
        compiler_flops: The compiler's own count, in which a loop counts once; None where it gives none.
        matmuls_by_libraries: Whether XLA's own kernels for matrix products were left out, for one of which it knew no
            tiling: without the GPU none can be tried out.
        beside_bytes: What is held while it runs and is none of its arguments.
    """

    seconds: float
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    host_argument_bytes: int
    host_output_bytes: int
    host_alias_bytes: int
    host_temp_bytes: int
    flops: float
    compiler_flops: float | None
    matmuls_by_libraries: bool
    beside_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The program's own peak: arguments, outputs that reuse none of them, temporaries."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes

    @property
    def needed_bytes(self) -> int:
        """Its peak and what is held beside it."""
        return self.peak_bytes + self.beside_bytes

    def figures(self) -> dict[str, Any]:
        """All of it by name, as tables and JSON show it."""
        return {
            "peak_bytes_per_device": self.peak_bytes,
            "needed_bytes_per_device": self.needed_bytes,
            **dataclasses.asdict(self),
        }


def prepare(topology: Topology) -> None:
    """Makes this process, whose platform is the CPU, ready to compile for a topology; nothing of JAX has run yet.

    Args:
        topology: Accelerators that need not be here; those that are stay untouched.
    """
    if topology.hardware.platform == "cuda":
        os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if topology.hardware.platform == "tpu":
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    if topology.hardware.platform == "cpu" and topology.devices != jax.config.values["jax_num_cpu_devices"]:
        jax.config.update("jax_num_cpu_devices", topology.devices)


def described_devices(topology: Topology) -> list[Any]:
    """The devices of a topology, good for compiling alone.

    Args:
        topology: What ``prepare`` was called with, or another one of the same platform.

    Returns:
        Devices for a mesh.

    Raises:
        ConfigError: where the compiler is not installed, or knows no such topology.
    """
    platform, sides = topology.hardware.platform, "x".join(map(str, topology.grid))
    if platform == "cpu":
        return jax.devices("cpu")[: topology.devices]
    try:
        if platform == "cuda":
            described = topologies.get_topology_desc(
                platform="cuda", target_config=topology.hardware.target, topology=f"1x{sides}"
            )
        else:
            described = topologies.get_topology_desc(platform="tpu", topology_name=f"{topology.hardware.name}:{sides}")
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(f"--topology: got {topology.name}, which the compiler refuses: {error}") from error
    except (NotImplementedError, RuntimeError) as error:
        extra = {"cuda": "aot-cuda", "tpu": "aot-tpu"}[platform]
        raise ConfigError(
            f"--topology: got {topology.name}, whose compiler is not installed: {error}. "
            f"It needs no accelerator: pip install 'grpo-jax[{extra}]'"
        ) from error
    return list(described.devices)


def compiled(program: Program, topology: Topology, resident_bytes: int) -> Compiled:
    """Compiles a program.

    Args:
        program: Lowered for devices of the topology.
        topology: The topology.
        resident_bytes: What is held on each device while it runs, its arguments among it.

    Returns:
        What it needs.

    Raises:
        DoesNotFit: where the compiler itself refuses a program for its size.
    """
    started = time.perf_counter()
    try:
        built, libraries = executable(program, topology)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        raise DoesNotFit(f"{topology.name} does not hold the program: {reason}") from error
    seconds = time.perf_counter() - started
    sizes = built.memory_analysis()
    assert sizes is not None, "compilers for CPU, GPU and TPU all know the sizes of their buffers"
    costs = built.cost_analysis()
    fields = ("argument", "output", "alias", "temp", "host_argument", "host_output", "host_alias", "host_temp")
    return Compiled(
        seconds=seconds,
        flops=program.flops / topology.devices,
        matmuls_by_libraries=libraries,
        compiler_flops=None if costs is None else costs.get("flops"),
        beside_bytes=max(0, resident_bytes - sizes.argument_size_in_bytes),
        **{f"{name}_bytes": getattr(sizes, f"{name}_size_in_bytes") for name in fields},
    )


def executable(program: Program, topology: Topology) -> tuple[jax.stages.Compiled, bool]:
    """Compiles a program as ``compiled`` does.

    Args:
        program: Lowered for devices of the topology.
        topology: The topology.

    Returns:
        The compiled program, and whether its matrix products were left to libraries.
    """
    try:
        return program.lowered.compile(), False
    except jax.errors.JaxRuntimeError as error:
        if topology.hardware.platform != "cuda" or "output tile sizes" not in str(error):
            raise
    print("XLA knows no tiling for one of its kernels; compiling again with those of libraries", file=sys.stderr)
    return program.lowered.compile({"xla_gpu_enable_triton_gemm": False}), True


def figures(programs: Mapping[str, Compiled], topology: Topology) -> dict[str, Any]:
    """Figures of an update and of the programs beside it.

    Args:
        programs: By name; ``update`` is one of them.
        topology: What they are compiled for.

    Returns:
        The update's figures by name, the others' below theirs, and whether there is memory for all of them.
    """
    memory = topology.hardware.memory_bytes
    needed = max(program.needed_bytes for program in programs.values())
    return {
        "device_memory_bytes": memory or None,
        "fits": needed <= memory if memory else None,
        **programs["update"].figures(),
        **{name: program.figures() for name, program in programs.items() if name != "update"},
    }
