"""Devices are known by what they call themselves."""

import jax
import pytest

from grpo_jax.forensics import present


@pytest.mark.parametrize(
    ("device_kind", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v5 lite", "v5e"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA GeForce RTX 4090", None),
        ("cpu", None),
    ],
)
def test_devices_are_known_by_their_names(device_kind: str, name: str | None) -> None:
    found = present.hardware(device_kind)
    assert (found and found.name) == name


def test_the_devices_of_this_process_are_a_topology() -> None:
    topology = present.topology()
    assert topology.devices == jax.device_count()
    assert topology.hardware.platform == "cpu"
    assert topology.hardware.memory_bytes == present.device_bytes() > 0
