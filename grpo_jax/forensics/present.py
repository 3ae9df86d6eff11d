"""The devices of this process, as a compiler and an accountant know them."""

import math
import os
import re
import time
from typing import Literal

import jax
import jax.numpy as jnp

from grpo_jax.forensics.hardware import GIGABYTE, HARDWARE, Hardware, Topology

_MEASURED = {"cpu": 1024, "default": 8192}
"""Rows and columns of the matrices whose product shows how fast a device is."""


def topology() -> Topology:
    """The devices of this process and of those that it works with."""
    device = jax.devices()[0]
    platforms: dict[str, Literal["cpu", "tpu", "cuda"]] = {"cpu": "cpu", "tpu": "tpu", "gpu": "cuda"}
    kind = Hardware(device.device_kind, platforms[device.platform], device_bytes() or 0, 0.0, 0.0)
    return Topology(kind, (jax.device_count(),))


def hardware(device_kind: str) -> Hardware | None:
    """What is known of a kind of device.

    Args:
        device_kind: What the device calls itself, such as ``NVIDIA H100 80GB HBM3`` or ``TPU v6 lite``.

    Returns:
        Its entry of ``HARDWARE``, or None.
    """
    # A v5p calls itself v5, and what others call e it calls lite.
    name = re.sub(r"v5$", "v5p", device_kind.lower().replace(" lite", "e"))
    named = [kind for kind in HARDWARE.values() if kind.name.partition("-")[0] in name]
    # The variants of a GPU are told apart by their memory.
    return next((kind for kind in named if f"{kind.memory_bytes // GIGABYTE}gb" in name), named[0] if named else None)


def device_bytes() -> int | None:
    """What one device has, a share of the machine's memory on a CPU; None where it does not say."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
    return (device.memory_stats() or {}).get("bytes_limit")


def flops_per_second(dtype: jnp.dtype) -> float:
    """Measures one device on one large matrix product.

    Args:
        dtype: Of the matrices.

    Returns:
        Floating-point operations per second.
    """
    device = jax.local_devices()[0]
    size = _MEASURED.get(device.platform, _MEASURED["default"])
    matrix = jax.device_put(jnp.ones((size, size), dtype), device)
    product = jax.jit(lambda left, right: left @ right)
    product(matrix, matrix).block_until_ready()
    seconds = math.inf
    for _ in range(3):
        started = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds = min(seconds, time.perf_counter() - started)
    return 2 * size**3 / seconds
