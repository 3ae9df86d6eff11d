"""Every loss of the table through the recipe: batching, compaction and sharding leave a tiny model's gradient."""

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.training import grpo, judged, recipe
from tests.contract import losses
from tests.contract.updates import (
    ACROSS_ROWS,
    SECOND_REWARDS,
    B,
    G,
    assert_same_update,
    make_recipe,
    masked,
    on_mesh,
    rollout,
    updated,
)


@pytest.fixture(autouse=True)
def one_device():
    with on_mesh():
        yield


@pytest.mark.parametrize("name", losses.NAMES)
def test_compacted_micro_batches_give_the_update_of_all_rows(name):
    assert_same_update(updated(name, 4), name, 4)


@pytest.mark.parametrize("name", ACROSS_ROWS)
@pytest.mark.parametrize("micro_batch", [16, 8])
def test_one_and_two_micro_batches_give_the_update_of_all_rows(name, micro_batch):
    assert_same_update(updated(name, micro_batch), name, micro_batch)


@pytest.mark.parametrize("name", ACROSS_ROWS)
@pytest.mark.parametrize("data", [2, 4, 8])
def test_shards_give_the_update_of_all_rows(name, data):
    # At most 11 of the 16 rows take part and come first, so the last of 4 shards and the last two of 8 hold none.
    weight_BG = masked(name)[-1]
    assert np.sum(weight_BG > 0) <= 12
    with on_mesh(data):
        got = updated(name, 16)
    assert_same_update(got, name, 16)


def test_penalties_that_are_equal_are_no_reward_of_their_own():
    # 1 - 1e-3 - 1 and 1000 - 1e-3 - 1000 differ in float32; a group that is as long throughout has no penalty to learn.
    made = make_recipe("decoupled_rewards", 4)
    static = made.update.keywords["static"]
    reward_BG = np.array([[1, 1000, 500, 3]] * B, np.float32)
    batch = rollout()._replace(length_BG=np.full((B, G), 6, np.int32))

    def advantage_BG(penalty):
        part_BGK = np.stack([reward_BG, SECOND_REWARDS], axis=2)
        verdict = recipe.Outcome(reward_BG, part_BGK, np.ones((B, G), bool))
        put = judged.judged_batch(batch, verdict, losses.run_config("decoupled_rewards").algorithm)
        weighed, _ = grpo.weigh_groups(None, put, jnp.float32(penalty), jnp.float32(2), static=static)
        return np.asarray(weighed.advantage_BG)

    np.testing.assert_allclose(advantage_BG(1e-3), advantage_BG(0), atol=1e-5)
