"""The kernels' wrappers compute what the blockwise form computes, and are chosen only where they can."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import attention, fused_attention
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules

N, S, K, J, C = 3, 40, 2, 2, 8
ROWS = np.array([[0] * 5 + [1] * 30 + [0] * 5, [1] * 40, [0] * 31 + [1] * 9], np.int32)
"""Prompts padded on the left, completions on the right."""


def arrays(heads=(K, J, C), tokens=S):
    random = np.random.default_rng(0)
    K, J, C = heads
    shapes = ((N, tokens, K, J, C), (N, tokens, K, C), (N, tokens, K, C))
    return tuple(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes)


def outputs_and_gradients(attend, segment_NS, inputs):
    """Output at tokens, and gradients of a loss of it."""

    @jax.jit
    def loss(inputs):
        out = jnp.where((segment_NS > 0)[:, :, None, None, None], attend(*inputs), 0)
        return jnp.sum(jnp.sin(out)), out

    (_, out), gradients = jax.value_and_grad(loss, has_aux=True)(inputs)
    return out, gradients


def blockwise(window):
    return functools.partial(attention.row_attention, window=window, block_tokens=16, kernels=False)


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, **tolerance), a, b)


@pytest.mark.parametrize("window", [0, 7])
def test_rows_turned_for_a_kernel_without_masks_attend_as_they_did(window):
    kernel = functools.partial(fused_attention.cudnn_attention, window=window, implementation="xla")
    attend = lambda *inputs: fused_attention.by_kernel(kernel, *inputs, jnp.asarray(ROWS))  # noqa: E731
    wanted = lambda *inputs: blockwise(window)(*inputs, jnp.asarray(ROWS))  # noqa: E731
    assert_close(
        outputs_and_gradients(attend, ROWS, arrays()), outputs_and_gradients(wanted, ROWS, arrays()), atol=2e-5
    )


def test_a_kernel_runs_on_each_devices_own_rows_and_heads():
    kernel = functools.partial(fused_attention.cudnn_attention, window=0, implementation="xla")
    inputs = tuple(jnp.concatenate([array, array[:1]]) for array in arrays())
    segment_NS = jnp.concatenate([ROWS, ROWS[:1]])
    alone = fused_attention.by_kernel(kernel, *inputs, segment_NS)
    with jax.set_mesh(mesh_lib.make_mesh({"data": 2, "fsdp": 2, "tensor": 2, "context": 1, "expert": 1})):
        out = jax.jit(functools.partial(fused_attention.by_kernel, kernel))(*inputs, segment_NS)
        assert jax.typeof(out).sharding.spec == rules.partition((rules.BATCH, None, "heads", None, None))
    counted = np.asarray(segment_NS > 0)[:, :, None, None, None]
    np.testing.assert_allclose(np.where(counted, out, 0), np.where(counted, alone, 0), atol=1e-5)


@pytest.mark.parametrize("window", [0, 70])
def test_the_kernel_for_tpus_attends_inside_segments(window):
    segment_NS = np.repeat(np.array([[0, 1, 1, 2], [1, 1, 1, 1], [1, 2, 3, 0]], np.int32), 32, axis=1)
    inputs = arrays((1, 2, 128), tokens=128)
    kernel = functools.partial(fused_attention.splash_attention, window=window, interpret=True)
    attend = lambda *inputs: fused_attention.by_kernel(kernel, *inputs, jnp.asarray(segment_NS))  # noqa: E731
    wanted = lambda *inputs: blockwise(window)(*inputs, jnp.asarray(segment_NS))  # noqa: E731
    assert_close(
        outputs_and_gradients(attend, segment_NS, inputs), outputs_and_gradients(wanted, segment_NS, inputs), atol=2e-3
    )


@pytest.mark.parametrize(
    ("platform", "dtype", "head", "value", "window", "packed", "kernel"),
    [
        ("cuda", "bfloat16", 64, 64, 0, False, "cudnn_attention"),
        ("gpu", "bfloat16", 128, 128, 9, False, "cudnn_attention"),
        ("cuda", "float32", 64, 64, 0, False, None),
        ("cuda", "bfloat16", 256, 256, 0, False, None),
        ("cuda", "bfloat16", 64, 32, 0, False, None),
        ("cuda", "bfloat16", 64, 64, 0, True, None),
        ("cuda", "bfloat16", 64, 64, jnp.int32(3), False, None),
        ("tpu", "float32", 128, 128, 0, True, "splash_attention"),
        ("tpu", "bfloat16", 64, 64, 0, False, None),
        ("cpu", "bfloat16", 64, 64, 0, False, None),
    ],
)
def test_a_kernel_is_chosen_where_it_can_do_what_is_asked(
    monkeypatch, platform, dtype, head, value, window, packed, kernel
):
    monkeypatch.setattr(rules, "platform", lambda: platform)
    query, values = jnp.zeros((1, 4, 2, 2, head), dtype), jnp.zeros((1, 4, 2, value), dtype)
    chosen = fused_attention.kernel_for(query, values, window, packed=packed)
    assert (chosen and chosen.func.__name__) == kernel


def test_rows_that_are_shared_along_context_are_left_to_the_blockwise_form(monkeypatch):
    monkeypatch.setattr(rules, "platform", lambda: "cuda")
    query, values = jnp.zeros((1, 4, 2, 2, 64), "bfloat16"), jnp.zeros((1, 4, 2, 64), "bfloat16")
    with jax.set_mesh(mesh_lib.make_mesh({"data": 4, "fsdp": 1, "tensor": 1, "context": 2, "expert": 1})):
        assert fused_attention.kernel_for(query, values, 0, packed=False) is None


def test_the_platform_is_the_one_of_the_mesh_in_use():
    assert rules.platform() == jax.default_backend()
    with jax.set_mesh(mesh_lib.make_mesh({"data": 8, "fsdp": 1, "tensor": 1, "context": 1, "expert": 1})):
        assert rules.platform() == "cpu"
