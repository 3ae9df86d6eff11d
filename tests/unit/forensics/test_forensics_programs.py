import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from grpo_jax.forensics.programs import lower, matmul_flops
from grpo_jax.parallel import mesh

A, B = jax.ShapeDtypeStruct((4, 8), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32)
ONE = 2 * 4 * 8 * 8


def counted(function, *arguments, passes=1):
    return lower(jax.jit(function), *arguments, passes=passes).flops


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda a, b: a @ b, ONE),
        (lambda a, b: jax.jit(jnp.matmul)(a, b) + a, ONE),
        (lambda a, b: jax.lax.scan(lambda carry, _: (carry @ b, None), a, length=5)[0], 5 * ONE),
        (lambda a, b: jax.lax.fori_loop(0, a[0, 0].astype(int), lambda _, carry: carry @ b, a), 3 * ONE),
        (lambda a, b: jax.lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: a), ONE),
        (lambda a, b: jax.grad(lambda a: jnp.sum(jnp.sin(a @ b)))(a), 2 * ONE),
        (lambda a, b: jax.grad(lambda a: jnp.sum(jax.checkpoint(lambda a: jnp.sin(a @ b) @ b)(a)))(a), 5 * ONE),
        (lambda a, b: jnp.sum(a) * b, 0),
    ],
)
def test_products_are_counted_as_often_as_they_run(function, wanted):
    assert counted(function, A, B, passes=3) == wanted


def test_rows_of_a_ragged_product_meet_one_matrix_each():
    stacked, sizes = jax.ShapeDtypeStruct((3, 8, 5), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.int32)
    product = 2 * 4 * 8 * 5
    assert counted(jax.lax.ragged_dot, A, stacked, sizes) == product
    loss = lambda a, b, sizes: jnp.sum(jnp.sin(jax.lax.ragged_dot(a, b, sizes)))  # noqa: E731
    assert counted(jax.grad(loss, argnums=(0, 1)), A, stacked, sizes) == 3 * product


def test_what_every_device_computes_in_a_shard_map_counts_for_each():
    with jax.set_mesh(mesh.make_mesh({"data": 8, "fsdp": 1, "tensor": 1, "context": 1, "expert": 1})):
        place = jax.P("data", None)
        rows = jax.ShapeDtypeStruct((16, 8), jnp.float32)
        mapped = jax.shard_map(jnp.matmul, in_specs=(place, jax.P()), out_specs=place)
        assert counted(lambda a, b: mapped(jax.sharding.reshard(a, place), b), rows, B) == 2 * 16 * 8 * 8


@pytest.mark.parametrize(("name", "products"), [("fwd", 2), ("bwd", 5)])
@pytest.mark.parametrize("layout", [0, 1])
def test_products_inside_attention_kernels_count(name, products, layout):
    primitive = core.Primitive(f"dot_product_attention_{name}_wrapper")
    primitive.def_abstract_eval(lambda query, key, **_: query)

    def zeros(length, heads):
        return jnp.zeros((2, length, heads, 8) if layout == 0 else (2, heads, length, 8))

    traced = jax.make_jaxpr(lambda query, key: primitive.bind(query, key, layout=layout))(zeros(16, 4), zeros(32, 1))
    assert matmul_flops(traced.jaxpr) == products * 2 * (2 * 16 * 4 * 8) * 32


def test_products_of_a_pallas_kernel_count_for_every_block():
    from jax.experimental import pallas

    def kernel(left, right, out):
        out[...] = left[...] @ right[...]

    row = pallas.BlockSpec((4, 8), lambda index: (index, 0))
    whole = pallas.BlockSpec((8, 8), lambda index: (0, 0))
    blocks = pallas.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((12, 8), jnp.float32),
        grid=(3,),
        in_specs=[row, whole],
        out_specs=row,
        interpret=True,
    )
    traced = jax.make_jaxpr(blocks)(jnp.zeros((12, 8)), jnp.zeros((8, 8)))
    assert matmul_flops(traced.jaxpr) == 2 * 12 * 8 * 8
