import numpy as np
import pytest

from grpo_jax.records import FinishReason
from grpo_jax.rollout.engine import FinishedGroup, assemble, length_bucket, right_padded

PROMPTS = [[5, 6], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9]]


def group(index, version=3):
    token_GT = np.full((2, 4), index, np.int32)
    logprob_GT = np.full((2, 4), -index - 0.5, np.float32)
    length_G = np.array([4, index + 1], np.int32)
    finish_G = np.array([FinishReason.LENGTH, FinishReason.STOP], np.int32)
    return FinishedGroup(index, token_GT, logprob_GT, logprob_GT, length_G, finish_G, version)


def test_groups_are_put_back_into_the_order_of_their_prompts():
    rollout = assemble([group(2), group(0), group(1)], PROMPTS, pad_id=0)
    np.testing.assert_array_equal(rollout.token_BGT[:, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(rollout.logprob_BGT[:, 1, 3], [-0.5, -1.5, -2.5])
    np.testing.assert_array_equal(rollout.length_BG, [[4, 1], [4, 2], [4, 3]])
    np.testing.assert_array_equal(rollout.finish_BG, [[FinishReason.LENGTH, FinishReason.STOP]] * 3)
    assert rollout.policy_version == 3


def test_prompts_are_left_padded_to_a_bucket():
    rollout = assemble([group(0), group(1), group(2)], PROMPTS, pad_id=11)
    assert rollout.prompt_BP.shape == (3, 16)
    np.testing.assert_array_equal(rollout.prompt_length_B, [2, 1, 9])
    for row, prompt in zip(rollout.prompt_BP, PROMPTS, strict=True):
        np.testing.assert_array_equal(row, [11] * (16 - len(prompt)) + prompt)


def test_the_mask_comes_from_lengths():
    # Group 0 is made of token 0, which is the pad here: sampled pads count.
    rollout = assemble([group(0), group(1), group(2)], PROMPTS, pad_id=0)
    wanted = [[[1, 1, 1, 1], [1] * length + [0] * (4 - length)] for length in (1, 2, 3)]
    np.testing.assert_array_equal(rollout.mask_BGT, wanted)


@pytest.mark.parametrize("indices", [[0, 1], [0, 1, 1], [0, 1, 2, 2], [0, 1, 3], [0, 1, 2, 3]])
def test_missing_and_repeated_groups_are_refused(indices):
    with pytest.raises(AssertionError, match="a group is missing or was yielded twice"):
        assemble([group(index) for index in indices], PROMPTS, pad_id=0)


def test_groups_of_several_policies_are_refused():
    with pytest.raises(AssertionError, match=r"several policy versions in one batch: \[3, 4\]"):
        assemble([group(0), group(1, version=4), group(2)], PROMPTS, pad_id=0)


def test_right_padding_keeps_every_token():
    token_BP, length_B = right_padded(PROMPTS[:2], 4, pad_id=9)
    np.testing.assert_array_equal(token_BP, [[5, 6, 9, 9], [7, 9, 9, 9]])
    np.testing.assert_array_equal(length_B, [2, 1])


def test_buckets_are_few_and_hold_their_lengths():
    lengths = range(1, 300)
    buckets = [length_bucket(length) for length in lengths]
    assert set(buckets) == {8, 16, 32, 64, 128, 256, 512}
    assert all(length <= bucket <= max(8, 2 * length - 1) for length, bucket in zip(lengths, buckets, strict=True))
