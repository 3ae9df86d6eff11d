import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
