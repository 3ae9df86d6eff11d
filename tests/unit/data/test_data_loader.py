import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from grpo_jax.config import ColdStartConfig, DataConfig
from grpo_jax.data.addition import AdditionTask
from grpo_jax.data.loader import DemonstrationLoader, PromptLoader
from grpo_jax.data.tokenizer import CharacterTokenizer
from grpo_jax.records import Problem

PROBLEMS = [Problem(str(i), f"{i}?", str(i)) for i in range(10)]


@pytest.fixture(scope="module")
def addition():
    return AdditionTask(
        DataConfig(digits=2, prompt_template="{problem}="), ColdStartConfig(steps=1, thinking_share=0.5)
    )


def stream(loader, batches):
    return [problem.identifier for batch in islice(loader, batches) for problem in batch]


@pytest.mark.parametrize(("count", "batch_size"), [(10, 4), (10, 3), (3, 8), (1, 2), (10, 10)])
def test_every_epoch_sees_every_problem_once_and_nothing_is_dropped(count, batch_size):
    loader = PromptLoader(PROBLEMS[:count], batch_size, seed=0)
    batches = list(islice(loader, 4 * count))
    assert all(isinstance(batch, list) and len(batch) == batch_size for batch in batches)
    seen = [problem for batch in batches for problem in batch]
    for epoch in range(4 * batch_size):
        names = [problem.identifier for problem in seen[epoch * count : (epoch + 1) * count]]
        assert sorted(names) == [problem.identifier for problem in PROBLEMS[:count]], epoch


def test_epochs_and_seeds_have_orders_of_their_own():
    epochs = {seed: stream(PromptLoader(PROBLEMS, 10, seed), 5) for seed in range(5)}
    orders = [tuple(names[i : i + 10]) for names in epochs.values() for i in range(0, 50, 10)]
    # A seed's second epoch must not be the next seed's first one either.
    assert len(set(orders)) == len(orders)


def test_first_places_are_shared_evenly():
    counts = Counter(stream(PromptLoader(PROBLEMS, 1, seed), 1)[0] for seed in range(300))
    assert len(counts) == 10
    assert max(counts.values()) < 60


def test_prompts_resume_exactly_after_json():
    loader = PromptLoader(PROBLEMS, 4, seed=7)
    stream(loader, 6)
    state = json.loads(json.dumps(loader.get_state()))
    expected = stream(loader, 20)
    resumed = PromptLoader(PROBLEMS, 4, seed=7)
    stream(resumed, 2)
    resumed.set_state(state)
    assert resumed.get_state() == state
    assert stream(resumed, 20) == expected


def test_a_fresh_state_starts_at_the_first_batch():
    state = PromptLoader(PROBLEMS, 4, seed=7).get_state()
    resumed = PromptLoader(PROBLEMS, 4, seed=7)
    resumed.set_state(state)
    assert stream(resumed, 3) == stream(PromptLoader(PROBLEMS, 4, seed=7), 3)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (PromptLoader(PROBLEMS[:9], 4, 7), r"problems = 9, this run has 10"),
        (PromptLoader(PROBLEMS, 5, 7), r"batch_size = 5, this run has 4"),
        (PromptLoader(PROBLEMS, 4, 8), r"seed = 8, this run has 7.*start a new run"),
    ],
)
def test_a_foreign_state_is_refused(other, message):
    with pytest.raises(ValueError, match=message):
        PromptLoader(PROBLEMS, 4, 7).set_state(other.get_state())


def test_a_demonstration_batch_has_a_fixed_shape(addition):
    tokenizer = CharacterTokenizer()
    for batch in islice(DemonstrationLoader(addition, tokenizer, 16, seed=0, max_tokens=40), 5):
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
            "token_NS": ((16, 40), np.int32),
            "prompt_length_N": ((16,), np.int32),
            "length_N": ((16,), np.int32),
        }
        for row, prompt_length, length in zip(*batch.values(), strict=True):
            prompt, completion = row[:prompt_length], row[prompt_length:length]
            assert prompt[0] == tokenizer.bos_id
            left, right = tokenizer.decode(prompt.tolist()).removesuffix("=").split("+")
            assert completion[-1] == tokenizer.eos_ids[0]
            text = tokenizer.decode(completion.tolist())
            assert text.startswith(("<think>", f"<answer>{int(left) + int(right)}</answer>"))
            assert text.endswith("</answer>")
            assert np.all(row[length:] == tokenizer.pad_id)
            assert np.all(row[:length] != tokenizer.pad_id)


def test_demonstrations_resume_exactly(addition):
    def build():
        return DemonstrationLoader(addition, CharacterTokenizer(), 8, seed=3, max_tokens=40)

    loader = build()
    list(islice(loader, 5))
    state = json.loads(json.dumps(loader.get_state()))
    expected = list(islice(loader, 10))
    resumed = build()
    resumed.set_state(state)
    for left, right in zip(expected, islice(resumed, 10), strict=True):
        for name, array in left.items():
            np.testing.assert_array_equal(array, right[name])


def test_demonstrations_do_not_depend_on_the_batch_size(addition):
    def rows(batch_size):
        loader = DemonstrationLoader(addition, CharacterTokenizer(), batch_size, seed=3, max_tokens=40)
        return np.concatenate([batch["token_NS"] for batch in islice(loader, 24 // batch_size)])

    np.testing.assert_array_equal(rows(4), rows(12))


class OneProblem:
    """A task with a single problem, whose demonstration is a random digit."""

    name = "one"

    def problems(self, split):
        return [Problem("only", "1", "1")]

    def demonstration(self, problem, generator):
        return str(generator.integers(10))


def test_every_visit_writes_a_new_demonstration():
    loader = DemonstrationLoader(OneProblem(), CharacterTokenizer(), 200, seed=0, max_tokens=4)
    counts = np.bincount(next(loader)["token_NS"][:, 2], minlength=32)
    assert np.count_nonzero(counts) == 10


def test_a_demonstration_that_does_not_fit_is_named(addition):
    loader = DemonstrationLoader(addition, CharacterTokenizer(), 8, seed=0, max_tokens=10)
    message = r"demonstration of addition/\d+\+\d+ has \d+ tokens \(7 of them .*at most 10\. Raise rollout\.max_new"
    with pytest.raises(ValueError, match=message):
        next(loader)
