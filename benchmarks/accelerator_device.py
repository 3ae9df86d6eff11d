"""The device that benchmarks/accelerator.py measures, and what it says of itself."""

import importlib.metadata
import os
from typing import Any

import jax
import jax.numpy as jnp

from grpo_jax.forensics import present
from grpo_jax.io.resources import memory_metrics


def live_memory(host_bytes_before: float) -> dict[str, Any]:
    """The highest memory use so far: the device's, or by how much this process has grown where that is the device."""
    metrics = memory_metrics()
    if "memory/device_peak_bytes" in metrics:
        return {"live_bytes": metrics["memory/device_peak_bytes"], "of": "device"}
    return {"live_bytes": metrics["memory/host_peak_bytes"] - host_bytes_before, "of": "growth of the process"}


def peak(dtype: str) -> tuple[float, str]:
    """Matrix products that the device can do per second, and where that number is from."""
    known = present.hardware(jax.devices()[0].device_kind)
    if known is not None:
        return known.flops_per_second, "data sheet, dense bfloat16"
    return present.flops_per_second(jnp.dtype(dtype)), f"measured, one large product in {dtype}"


def device(dtype: str) -> dict[str, Any]:
    """What is measured on, and with what."""
    first = jax.devices()[0]
    flops_per_second, source = peak(dtype)
    names = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu")
    installed = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
    return {
        "kind": first.device_kind,
        "platform": first.platform,
        "platform_version": ", ".join(first.client.platform_version.split("\n")),
        "memory_bytes": present.device_bytes(),
        "peak_flops_per_second": flops_per_second,
        "peak_source": source,
        "measured_flops_per_second": present.flops_per_second(jnp.dtype(dtype)),
        "processors": os.cpu_count(),
        "versions": {name: installed[name] for name in names if name in installed},
    }
