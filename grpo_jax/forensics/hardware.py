"""Accelerators as a compiler and an accountant know them: none of them has to be here."""

import dataclasses
import math
import re
from typing import Literal, NamedTuple

from grpo_jax.config import ConfigError

GIGABYTE = 10**9


@dataclasses.dataclass(frozen=True)
class Hardware:
    """One kind of accelerator.

    Attributes:
        name: As it is asked for.
        platform: Whose compiler makes programs for it.
        memory_bytes: Memory of one, as it is sold.
        flops_per_second: Dense matrix products in bfloat16.
        bytes_per_second: Of its memory.
        target: Text of the ``GpuTargetConfigProto`` that describes a GPU.

    Source: the makers' data sheets; what a GPU reports of itself to XLA.
    """

    name: str
    platform: Literal["cuda", "tpu", "cpu"]
    memory_bytes: int
    flops_per_second: float
    bytes_per_second: float
    target: str = ""


def _gpu_target(
    described: str, major: int, cores: int, clock: float, memory: int, bandwidth: int, shared: int, l2: int
) -> str:
    """A GPU of 2,048 threads and 65,536 registers per core, as all of a data centre's since 2020 are."""
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {128 if major >= 9 else 64}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {l2}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {shared - 1024}
  cuda_compute_capability {{ major: {major} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{described}"
"""


_H100 = _gpu_target("NVIDIA H100 80GB HBM3", 9, 132, 1.98, 84_929_347_584, 3_352_320_000_000, 233_472, 52_428_800)
_H200 = _gpu_target("NVIDIA H200", 9, 132, 1.98, 150_122_528_768, 4_800_000_000_000, 233_472, 62_914_560)
_A100_80 = _gpu_target("NVIDIA A100-SXM4-80GB", 8, 108, 1.41, 84_987_740_160, 2_039_000_000_000, 167_936, 41_943_040)
_A100_40 = _gpu_target("NVIDIA A100-SXM4-40GB", 8, 108, 1.41, 42_297_786_368, 1_555_200_000_000, 167_936, 41_943_040)

HARDWARE = {
    kind.name: kind
    for kind in (
        Hardware("h100", "cuda", 80 * GIGABYTE, 989e12, 3.35e12, _H100),
        Hardware("h200", "cuda", 141 * GIGABYTE, 989e12, 4.8e12, _H200),
        Hardware("a100", "cuda", 80 * GIGABYTE, 312e12, 2.04e12, _A100_80),
        Hardware("a100-40", "cuda", 40 * GIGABYTE, 312e12, 1.56e12, _A100_40),
        Hardware("v5p", "tpu", 95 * GIGABYTE, 459e12, 2.77e12),
        Hardware("v5e", "tpu", 16 * GIGABYTE, 197e12, 0.82e12),
        Hardware("v6e", "tpu", 32 * GIGABYTE, 918e12, 1.64e12),
    )
}
"""Accelerators by name."""

CPU = Hardware("cpu", "cpu", 0, 0.0, 0.0)
"""This machine's processor, split into as many devices as are wanted; how much memory each has is not known."""


class Topology(NamedTuple):
    """Accelerators and how they are joined.

    Attributes:
        hardware: Their kind.
        grid: Hosts and accelerators of each (GPUs), the sides of a torus (TPUs), or devices (CPU).
    """

    hardware: Hardware
    grid: tuple[int, ...]

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(self.grid)

    @property
    def devices_per_host(self) -> int:
        """How many are joined closely enough to share one matrix product: a GPU host's, or 8 at most."""
        return self.grid[-1] if self.hardware.platform == "cuda" else math.gcd(self.devices, 8)

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"{self.hardware.name}:{'x'.join(map(str, self.grid))}"


def parse_topology(text: str) -> Topology:
    """Reads a topology.

    Args:
        text: ``KIND:HOSTSxDEVICES`` for GPUs, ``KIND:XxY`` or ``KIND:XxYxZ`` for TPUs, ``cpu:DEVICES``.

    Returns:
        The topology.

    Raises:
        ConfigError: for a kind that is not known, or a grid that its platform does not have.
    """
    name, _, grid = text.partition(":")
    kind = CPU if name == "cpu" else HARDWARE.get(name)
    if kind is None:
        raise ConfigError(f"--topology: got {text!r}, wanted one of {', '.join(HARDWARE)}, cpu before the colon.")
    sides = {"cuda": (2,), "tpu": (2, 3), "cpu": (1,)}[kind.platform]
    form = {"cuda": "HOSTSxDEVICES, as h100:8x8", "tpu": "XxY or XxYxZ, as v5p:4x4x4", "cpu": "DEVICES, as cpu:8"}
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", grid) or grid.count("x") + 1 not in sides:
        raise ConfigError(f"--topology: got {text!r}, wanted {name}:{form[kind.platform]}.")
    return Topology(kind, tuple(map(int, grid.split("x"))))
