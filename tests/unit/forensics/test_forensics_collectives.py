"""Traffic between devices, read from programs whose traffic is known."""

import jax
import jax.numpy as jnp
import pytest

from grpo_jax.forensics import collectives
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules

LAYERS, D = 5, 16


@pytest.fixture(scope="module")
def text():
    """A scan that gathers one matrix of a stack in each round, and a sum over devices behind it."""
    with jax.set_mesh(mesh_lib.make_mesh({"data": 1, "fsdp": 8, "tensor": 1, "context": 1, "expert": 1})):

        def body(x, weight):
            return jnp.tanh(x @ rules.gather_parameters(weight, ("embed", None))), None

        def run(x, weights):
            return jnp.sum(rules.replicate(jax.lax.scan(body, x, weights)[0]))

        x = jax.ShapeDtypeStruct(
            (8, D), jnp.float32, sharding=jax.NamedSharding(jax.sharding.get_mesh(), jax.P("fsdp"))
        )
        place = jax.NamedSharding(jax.sharding.get_mesh(), jax.P(None, ("fsdp", "context")))
        weights = jax.ShapeDtypeStruct((LAYERS, D, D), jnp.float32, sharding=place)
        return jax.jit(run).lower(x, weights).compile().as_text()


def test_a_gather_in_a_loop_counts_in_every_round(text):
    found = collectives.traffic(text)
    assert found.open_loops == 0
    # Each round gathers D x D float32 numbers; the rows are gathered once, at the end.
    assert found.bytes["all-gather"] == LAYERS * D * D * 4 + 8 * D * 4
    assert found.counts["all-gather"] == LAYERS + 1


HAND_MADE = """HloModule made, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (p: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %gather-start = (bf16[4,8]{1,0}, bf16[32,8]{1,0}) all-gather-start(%x), dimensions={0}
  %scatter = ((bf16[32,8]{1,0}), bf16[4,8]{1,0}) reduce-scatter-start(%y), to_apply=%add
}

%unknown (p: s32[]) -> s32[] {
  %permuted = f8e4m3fn[100]{0} collective-permute(%z)
}

ENTRY %main (p: f32[10]) -> f32[10] {
  %w = (s32[], bf16[4,8]{1,0}) while(%t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %v = s32[] while(%t), condition=%c, body=%unknown
  ROOT %r = (f32[10]{0}, f32[2]{0}) all-reduce(%p, %q), to_apply=%add
}
"""


def test_started_operations_tuples_and_loops_of_unknown_length():
    found = collectives.traffic(HAND_MADE)
    assert found.bytes == {
        "all-gather": 3 * 32 * 8 * 2,
        "reduce-scatter": 3 * 32 * 8 * 2,
        "collective-permute": 100,
        "all-reduce": 48,
    }
    assert found.counts == {"all-gather": 3, "reduce-scatter": 3, "collective-permute": 1, "all-reduce": 1}
    assert found.open_loops == 1
