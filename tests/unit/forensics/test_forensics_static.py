import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.forensics import static
from grpo_jax.forensics.static import device_bytes, markdown_table
from grpo_jax.parallel import mesh


@pytest.fixture(autouse=True)
def eight_devices():
    with jax.set_mesh(mesh.make_mesh({"data": 2, "fsdp": 2, "tensor": 2, "context": 1, "expert": 1})):
        yield


@pytest.mark.parametrize(
    ("axes", "dtype", "wanted"),
    [
        ((), jnp.float32, 8 * 16 * 4),
        ((("data", "fsdp"),), jnp.float32, 2 * 16 * 4),
        (("fsdp", "tensor"), jnp.bfloat16, 4 * 8 * 2),
        ((None, "tensor"), jnp.int8, 8 * 8),
    ],
)
def test_bytes_are_those_of_one_devices_shards(axes, dtype, wanted):
    array = mesh.put(np.zeros((8, 16), dtype), *axes)
    tree = {"a": array, "none": None, "b": [jnp.zeros((), jnp.int32)]}
    abstract = jax.eval_shape(lambda tree: tree, tree)
    assert device_bytes(tree) == device_bytes(abstract) == wanted + 4
    assert array.addressable_shards[0].data.nbytes == wanted
    assert device_bytes(None) == 0


def test_a_table_is_in_gibibytes():
    rows = {"first": {"a": 2**30, "b": 0, "unseen": 1}, "second": {"a": 2**29, "b": 2**31, "unseen": 1}}
    table = markdown_table(rows, ("b", "a"), "run")
    assert table.splitlines() == [
        "| run | b | a |",
        "|---|---|---|",
        "| first | 0.000 | 1.000 |",
        "| second | 2.000 | 0.500 |",
    ]


def gigabytes(parameters, algorithm, **dtypes):
    return static.in_gigabytes(static.bytes_by_rule(parameters, algorithm, static.Dtypes(**dtypes)))


def test_bytes_by_rule_of_a_dense_model():
    held = gigabytes(70e9, "ppo")
    trained = {"weights": 140, "master": 280, "first_moment": 280, "second_moment": 280, "gradients": 280}
    assert held == {"policy": trained, "critic": trained, "reference": {"weights": 140}}
    assert static.total(held) == 2660
    assert static.total(gigabytes(70e9, "grpo")) == 1400
    assert static.total(gigabytes(70e9, "grpo", gradients="none")) == 980 + 140
    assert gigabytes(70e9, "grpo", gradients="bfloat16")["policy"]["gradients"] == 140


def test_bytes_by_rule_of_a_model_in_eight_bits():
    eight = {"weights": "float8_e4m3fn", "reference": "float8_e4m3fn"}
    held = gigabytes(671e9, "ppo", gradients="bfloat16", **eight)
    assert held["reference"]["weights"] == held["policy"]["weights"] == 671
    assert sum(held["policy"][name] for name in ("master", "first_moment", "second_moment")) == 8052
    assert sum(held["critic"].values()) == 10_065
    narrow = static.choices(671e9, "ppo", static.Dtypes(gradients="bfloat16", **eight))["gradients"]
    assert narrow["float8_e4m3fn"] == {"trained_model_gb": 9394, "total_gb": 2 * 9394 + 671}


def test_what_holds_the_sum():
    fits = static.fits_on(1400e9, 16)
    assert (fits["h100"]["needed"], fits["h100"]["fits"]) == (18, False)
    assert (fits["h200"]["needed"], fits["h200"]["fits"]) == (10, True)
    assert fits["a100-40"]["memory_gb"] == 40


def test_what_lies_on_the_host_is_none_of_a_devices():
    on_host = jax.ShapeDtypeStruct(
        (8, 16),
        jnp.float32,
        sharding=jax.NamedSharding(jax.sharding.get_mesh(), jax.P("data"), memory_kind="pinned_host"),
    )
    tree = (on_host, jax.ShapeDtypeStruct((3,), jnp.float32))
    assert (static.device_bytes(tree), static.host_bytes(tree)) == (12, 4 * 16 * 4)
