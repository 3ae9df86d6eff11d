import pytest

from grpo_jax.config import ConfigError
from grpo_jax.forensics.hardware import HARDWARE, parse_topology


@pytest.mark.parametrize(
    ("text", "platform", "devices", "per_host"),
    [("h100:4x8", "cuda", 32, 8), ("a100-40:1x4", "cuda", 4, 4), ("v5p:4x4x4", "tpu", 64, 8), ("cpu:12", "cpu", 12, 4)],
)
def test_topologies_are_read(text, platform, devices, per_host):
    topology = parse_topology(text)
    assert (topology.hardware.platform, topology.devices, topology.devices_per_host) == (platform, devices, per_host)
    assert topology.name == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b300:1x8", r"--topology: got 'b300:1x8', wanted one of h100, .*, cpu before the colon"),
        ("h100:8", r"--topology: got 'h100:8', wanted h100:HOSTSxDEVICES"),
        ("h100", r"--topology: got 'h100', wanted h100:HOSTSxDEVICES"),
        ("h100:0x8", r"--topology: got 'h100:0x8'"),
        ("v6e:4", r"wanted v6e:XxY or XxYxZ"),
        ("cpu:2x2", r"wanted cpu:DEVICES"),
    ],
)
def test_other_topologies_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_topology(text)


def test_a_described_gpu_has_about_the_memory_that_it_is_sold_with():
    gpus = [kind for kind in HARDWARE.values() if kind.platform == "cuda"]
    assert len(gpus) >= 3
    for kind in gpus:
        described = int(kind.target.split("device_memory_size: ")[1].split()[0])
        assert 1 <= described / kind.memory_bytes < 1.08
        assert f'device_description_str: "NVIDIA {kind.name.partition("-")[0].upper()}' in kind.target
