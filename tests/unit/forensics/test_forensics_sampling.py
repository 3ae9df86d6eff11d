import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.forensics.sampling import lower_sampling
from grpo_jax.forensics.static import device_bytes
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules
from grpo_jax.rollout.engine import SamplingParams
from grpo_jax.rollout.jax_engine import JaxEngine, start
from grpo_jax.training.recipe import abstract_params, init_sharded

SPEC = ModelSpec(vocab_size=16, num_layers=1, d_model=16, num_heads=4, num_kv_heads=2, head_dim=4, d_ff=16)
SAMPLING = SamplingParams(completions_per_prompt=3, max_new_tokens=5)


@pytest.mark.slow  # compiles a prefill for 8 devices
def test_the_shapes_between_the_programs_are_those_of_a_real_run():
    with jax.set_mesh(mesh.make_mesh({"data": 4, "fsdp": 2, "tensor": 1, "context": 1, "expert": 1})):
        engine = JaxEngine(SPEC, eos_ids=(1,), pad_id=0, batch_completions=24)
        lowered = lower_sampling(engine, abstract_params(SPEC), SAMPLING, prompts=8, prompt_tokens=10)
        batch = (np.full((8, 16), 2, np.int32), np.full(8, 10, np.int32), np.ones(8, bool))
        on_mesh = [mesh.put(array, rules.RULES[rules.BATCH]) for array in batch]
        real = start(init_sharded(jax.random.key(0), SPEC), *on_mesh, jax.random.key(1), static=engine.static(SAMPLING))
    described = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.sharding.spec), tree)  # noqa: E731
    assert described(real) == described((lowered.prompt_cache, lowered.state))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(real))
    assert device_bytes((lowered.prompt_cache, lowered.state)) == held
    assert device_bytes(lowered.state.cache) == 2 * 1 * 3 * 2 * 5 * 4 * 4, "2 arrays of one prompt's completions"
    assert lowered.advance.lowered.out_info.cache.key_LBGKTC.dtype == jnp.float32
