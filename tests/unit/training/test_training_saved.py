import jax
import numpy as np

from grpo_jax.config import RunConfig, from_nested
from grpo_jax.models import adapters
from grpo_jax.parallel.mesh import AXES, make_mesh
from grpo_jax.training.published import open_policy
from grpo_jax.training.recipe import abstract_params, init_sharded
from grpo_jax.training.saved import placed

MODEL = {"num_layers": 1, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 8, "d_ff": 16}


def test_parameters_and_adapters_that_were_restored_whole_are_shared_over_the_mesh():
    config = from_nested(RunConfig, {"model": MODEL | {"lora": {"rank": 2}}})
    _, spec = open_policy(config.model, 32)
    with jax.set_mesh(make_mesh(dict.fromkeys(AXES, 1), jax.devices()[:1])):
        params = adapters.attached(
            init_sharded(jax.random.key(0), spec), adapters.init_adapters(jax.random.key(1), spec)
        )
    whole = jax.device_get(params)
    with jax.set_mesh(make_mesh(dict.fromkeys(AXES, 1) | {"fsdp": 2, "tensor": 2}, jax.devices()[:4])):
        shared = placed(whole, spec)
        wanted = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(spec))
        assert jax.tree.map(lambda leaf: leaf.sharding, adapters.without_adapters(shared)) == wanted
        assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(shared[adapters.ADAPTERS]))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(shared), whole)
