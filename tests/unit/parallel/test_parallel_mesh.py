import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.config import ConfigError
from grpo_jax.parallel import mesh, rules

REPOSITORY = Path(__file__).resolve().parents[3]

ONE = dict.fromkeys(mesh.AXES, 1)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ({"data": 8}, (8, 1, 1, 1, 1)),
        ({"data": -1}, (8, 1, 1, 1, 1)),
        ({"data": 2, "fsdp": 2, "tensor": 2}, (2, 2, 2, 1, 1)),
        ({"data": 2, "fsdp": -1, "tensor": 2}, (2, 2, 2, 1, 1)),
        ({"data": 8, "fsdp": -1}, (8, 1, 1, 1, 1)),
        ({"context": 2, "expert": 4}, (1, 1, 1, 2, 4)),
    ],
)
def test_the_mesh_has_the_wanted_sizes(sizes, shape):
    made = mesh.make_mesh(ONE | sizes)
    assert made.axis_names == mesh.AXES
    assert made.devices.shape == shape
    assert set(made.axis_types) == {jax.sharding.AxisType.Explicit}
    assert set(made.devices.flat) == set(jax.devices())


def test_sides_of_a_torus_are_split_where_an_axis_asks_for_it(monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("Failed to find assignment for logical_axis_index 2 of size 8")

    monkeypatch.setattr(jax, "make_mesh", refuse)
    made = mesh.make_mesh(ONE | {"fsdp": 2, "tensor": 4})
    assert made.devices.shape == (1, 2, 4, 1, 1)
    assert set(made.devices.flat) == set(jax.devices())
    assert set(made.axis_types) == {jax.sharding.AxisType.Explicit}


def test_a_platform_without_devices_is_named(monkeypatch):
    def no_backend():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", no_backend)
    with pytest.raises(ConfigError, match=r"JAX finds no devices .*Unable to initialize backend 'cuda'.* plugin"):
        mesh.make_mesh(ONE)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--config", "configs/quickstart.py", "--dry_run"],
        ["sample", "--model", "tiny", "--prompt", "1+1="],
    ],
    ids=lambda command: command[0],
)
def test_every_command_names_the_platform_that_is_not_there(command):
    environment = os.environ | {"JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": "-1"}
    arguments = [sys.executable, "-m", f"grpo_jax.{command[0]}", *command[1:]]
    ended = subprocess.run(arguments, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: JAX_PLATFORMS: got 'cuda', of which JAX finds no devices")


def test_the_mesh_uses_the_given_devices_only():
    made = mesh.make_mesh(ONE | {"tensor": -1}, jax.devices()[2:4])
    assert dict(made.shape) == ONE | {"tensor": 2}
    assert list(made.devices.flat) == jax.devices()[2:4]


@pytest.mark.parametrize("sizes", [{}, {"data": 4}, {"data": 16}, {"data": 3, "fsdp": -1}, {"data": 4, "fsdp": 3}])
def test_sizes_that_do_not_use_every_device_once_are_refused(sizes):
    with pytest.raises(ValueError, match=r"config\.mesh: got \{'data'.*product is the number of devices, 8\. One axis"):
        mesh.make_mesh(ONE | sizes)


def test_put_places_a_host_array_along_mesh_axes():
    host = np.arange(32.0).reshape(8, 4)
    with jax.set_mesh(mesh.make_mesh(ONE | {"data": 2, "fsdp": 2, "tensor": 2})):
        rows = mesh.put(host, ("data", "fsdp"))
        both = mesh.put(host, ("data", "fsdp"), "tensor")
        whole = mesh.put(host)
    assert [array.addressable_shards[0].data.shape for array in (rows, both, whole)] == [(2, 4), (2, 2), (8, 4)]
    for array in (rows, both, whole):
        np.testing.assert_array_equal(array, host)


def test_partition_follows_the_rules():
    assert rules.partition(("batch", None, "vocab")) == jax.P(("data", "fsdp", "expert"), None, "tensor")
    shared = ("fsdp", "context", "expert")
    assert rules.partition(("layers", "embed", "heads", None)) == jax.P(None, shared, "tensor", None)
    held = jax.P("expert", ("fsdp", "context"), "tensor")
    assert rules.partition(("expert", "expert_embed", "mlp")) == held
    with pytest.raises(KeyError, match="typo"):
        rules.partition(("typo",))


def test_without_a_mesh_nothing_is_touched():
    array = jnp.ones((3, 5))
    assert not rules.has_mesh()
    assert rules.shard(array, "batch", "vocab") is array
    assert rules.sharding("batch", None) is None
    assert rules.batch_shards() == 1
    parameters = {"weight": array}
    assert rules.gather_parameters(parameters, {"weight": ("embed", "mlp")}) is parameters
    rules.validate_divisible(parameters, {"weight": ("embed", "mlp")})


def test_on_a_mesh_arrays_move_and_their_cotangents_move_back():
    with jax.set_mesh(mesh.make_mesh(ONE | {"data": 2, "fsdp": 2, "tensor": 2})):
        assert rules.has_mesh()
        assert rules.batch_shards() == 4
        assert rules.sharding("batch", None) == jax.P(("data", "fsdp", "expert"), None)
        stored = mesh.put(np.arange(16.0).reshape(4, 4), "fsdp", "tensor")

        def loss(weight):
            used = rules.gather_parameters({"weight": weight}, {"weight": ("embed", "mlp")})["weight"]
            assert jax.typeof(used).sharding.spec == jax.P(None, "tensor")
            return jnp.sum(used**2)

        gradient = jax.jit(jax.grad(loss))(stored)
        assert rules.shard(stored, None, "vocab").addressable_shards[0].data.shape == (4, 2)
    assert gradient.sharding.spec == stored.sharding.spec
    np.testing.assert_array_equal(gradient, 2 * np.asarray(stored))


def test_sizes_that_do_not_divide_are_named():
    shapes = {"blocks": {"gate": jax.ShapeDtypeStruct((2, 8, 6), jnp.float32)}}
    axes = {"blocks": {"gate": ("layers", "embed", "mlp")}}
    with jax.set_mesh(mesh.make_mesh(ONE | {"data": 2, "fsdp": 2, "tensor": 2})):
        rules.validate_divisible(shapes, axes)
    with jax.set_mesh(mesh.make_mesh(ONE | {"data": 2, "tensor": 4})):
        wanted = (
            r"config\.mesh: parameter \['blocks'\]\['gate'\] of shape \(2, 8, 6\) has 6 along axis 2 \(mlp\), "
            r"wanted a multiple of 4, the devices along tensor\. Choose"
        )
        with pytest.raises(ValueError, match=wanted):
            rules.validate_divisible(shapes, axes)
        rows = {"rows": ("batch",)}
        rules.validate_divisible({"rows": jax.ShapeDtypeStruct((4,), jnp.float32)}, rows)
        with pytest.raises(
            ValueError, match=r"\['rows'\].* has 3 .*\(batch\), wanted a multiple of 2, .* data, fsdp, exp"
        ):
            rules.validate_divisible({"rows": jax.ShapeDtypeStruct((3,), jnp.float32)}, rows)


def test_axes_that_are_cut_twice_are_named():
    shapes = {"gate": jax.ShapeDtypeStruct((4, 8, 6), jnp.float32)}
    wanted = (
        r"config\.mesh: parameter \['gate'\] of shape \(4, 8, 6\) has 8 along axis 1 \(embed\), which expert would cut "
        r"as it does axis 0 \(expert\), wanted every mesh axis at most once in an array\. Give"
    )
    with pytest.raises(ValueError, match=wanted):
        rules.validate_divisible(shapes, {"gate": ("expert", "embed", "mlp")})
    rules.validate_divisible(shapes, {"gate": ("expert", "expert_embed", "mlp")})
