"""What this process holds in memory, as metrics."""

import resource
import sys
from typing import Any

import jax


def memory_metrics() -> dict[str, float]:
    """The highest memory use so far of this process and, where they tell, of its devices.

    Returns:
        ``memory/host_peak_bytes``, and on accelerators ``memory/device_peak_bytes`` of the fullest device of this
        process with ``memory/device_limit_bytes``, what it may use.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The kernel counts kibibytes, that of macOS bytes.
    metrics = {"memory/host_peak_bytes": float(peak if sys.platform == "darwin" else peak * 1024)}
    return metrics | fullest_device([device.memory_stats() for device in jax.local_devices()])


def fullest_device(statistics: list[dict[str, Any] | None]) -> dict[str, float]:
    """Picks the device with the highest peak.

    Args:
        statistics: What each device says; None or without a peak where it does not tell, as on a CPU.

    Returns:
        Its peak and limit in bytes, or nothing.
    """
    told = [device for device in statistics if device and "peak_bytes_in_use" in device]
    if not told:
        return {}
    fullest = max(told, key=lambda device: device["peak_bytes_in_use"])
    metrics = {"memory/device_peak_bytes": float(fullest["peak_bytes_in_use"])}
    if "bytes_limit" in fullest:
        metrics["memory/device_limit_bytes"] = float(fullest["bytes_limit"])
    return metrics
