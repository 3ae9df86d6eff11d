"""The in-process engine: what it samples, what it says about it, and when it hands it out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from grpo_jax.models import decoder
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.records import FinishReason
from grpo_jax.rollout import jax_engine
from grpo_jax.rollout.engine import SamplingParams, assemble
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training.completions import Rows, completion_logprobs

SPEC = ModelSpec(
    vocab_size=16,
    num_layers=2,
    d_model=8,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    d_ff=12,
    qk_norm=True,
    qkv_bias=True,
)
EOS_IDS = (3, 11)
PROMPTS = [[5], [1, 2, 4, 6, 7, 8, 9], [10, 12, 13, 14, 15, 0, 1, 2], [4, 4, 4], [9, 0, 5, 3]]
SAMPLING = SamplingParams(completions_per_prompt=4, max_new_tokens=6)
KEY = jax.random.key(7)


def make_mesh(**sizes):
    sizes = dict.fromkeys(mesh_lib.AXES, 1) | sizes
    return mesh_lib.make_mesh(sizes, jax.devices()[: int(np.prod(list(sizes.values())))])


@pytest.fixture(autouse=True)
def one_device():
    with jax.set_mesh(make_mesh()) as mesh:
        yield mesh


def random_params(seed=0, spec=SPEC):
    noise = np.random.default_rng(seed)

    def draw(path, leaf):
        name = path[-1].key
        middle, deviation = (1, 0.2) if name.endswith("norm") else (0, 1.0 if name == "embedding" else 0.4)
        return (middle + deviation * noise.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(draw, shapes)


PARAMS = random_params()


def on_mesh(params, spec=SPEC):
    mesh = jax.sharding.get_mesh()
    place = lambda leaf, names: jax.device_put(leaf, NamedSharding(mesh, rules.partition(names)))  # noqa: E731
    return jax.tree.map(place, params, decoder.logical_axes(spec))


def make_engine(params=PARAMS, version=0, eos_ids=EOS_IDS, pad_id=3, batch_completions=12, chunk_tokens=2):
    """Pads share an id with an end of sequence; five prompts make one batch of three and one of two."""
    engine = JaxEngine(
        SPEC, eos_ids=eos_ids, pad_id=pad_id, batch_completions=batch_completions, chunk_tokens=chunk_tokens
    )
    engine.sync(on_mesh(params), version)
    return engine


def sample(engine, prompts=PROMPTS, sampling=SAMPLING, key=KEY):
    groups = list(engine.generate(prompts, sampling=sampling, key=key))
    return assemble(groups, prompts, pad_id=0), groups


@functools.cache
def sampled(temperature=1.0):
    return sample(make_engine(), sampling=dataclasses.replace(SAMPLING, temperature=temperature))


score = jax.jit(completion_logprobs, static_argnames=("spec", "temperature"))


def trainer_logprobs(rollout, temperature, params=PARAMS, spec=SPEC):
    B, G, T = rollout.token_BGT.shape
    repeat = lambda array: jnp.asarray(np.repeat(array, G, axis=0))  # noqa: E731
    flat = lambda array: jnp.asarray(array.reshape(B * G, *array.shape[2:]))  # noqa: E731
    rows = Rows(
        repeat(rollout.prompt_BP),
        repeat(rollout.prompt_length_B),
        flat(rollout.token_BGT),
        flat(rollout.length_BG),
        flat(rollout.logprob_BGT),
        jnp.ones(B * G),
        jnp.ones(B * G),
        jnp.arange(B * G),
    )
    return np.asarray(score(on_mesh(params, spec), spec, rows, temperature).logprob_NT).reshape(B, G, T)


def assert_trainer_agrees(rollout, temperature=1.0):
    mask_BGT = rollout.mask_BGT
    wanted_BGT = trainer_logprobs(rollout, temperature)
    np.testing.assert_allclose(rollout.logprob_BGT[mask_BGT], wanted_BGT[mask_BGT], rtol=0, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_sampler_logprobs_are_the_trainers(temperature):
    rollout, groups = sampled(temperature)
    assert_trainer_agrees(rollout, temperature)
    mask_BGT = rollout.mask_BGT
    other_BGT = trainer_logprobs(rollout, 1.0 if temperature != 1.0 else 0.6)
    assert np.abs(rollout.logprob_BGT - other_BGT)[mask_BGT].mean() > 0.05
    for group in groups:
        np.testing.assert_array_equal(group.truncated_logprob_GT, group.logprob_GT)


FAMILIES = {
    "windows": dataclasses.replace(SPEC, windows=(3, 0), window_rope_theta=100.0),
    "experts": dataclasses.replace(SPEC, experts=Experts(4, 2, 6, shared_d_ff=4)),
    "latent": dataclasses.replace(
        SPEC, num_kv_heads=4, head_dim=6, qk_norm=False, qkv_bias=False, latent=LatentAttention(5, 6, 4, 3)
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_sampler_logprobs_are_the_trainers_in_every_family(name):
    spec = FAMILIES[name]
    params = random_params(spec=spec)
    engine = JaxEngine(spec, eos_ids=EOS_IDS, pad_id=3, batch_completions=12, chunk_tokens=2)
    engine.sync(on_mesh(params, spec), 0)
    rollout, _ = sample(engine)
    mask_BGT = rollout.mask_BGT
    wanted_BGT = trainer_logprobs(rollout, 1.0, params, spec)
    np.testing.assert_allclose(rollout.logprob_BGT[mask_BGT], wanted_BGT[mask_BGT], rtol=0, atol=2e-5)


class Letters:
    """Ids 0 to 15 are the letters from a on; 12 to 15 are pairs of them."""

    vocab_size, pad_id, bos_id, eos_ids = 16, 3, None, EOS_IDS
    texts = (*"abcdefghijkl", "ab", "ba", "ae", "ca")

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text]

    encode_prompt = encode

    def decode(self, ids):
        return "".join(self.texts[index] for index in ids)

    def token_bytes(self):
        return [text.encode() for text in self.texts]


STOPS = ("aba", "e", "ca", "ii")


def ends_of(token_BGT, eos_ids, stops):
    """Lengths by the definition, and which completions ended: the first token that ends one, or the limit."""
    length_BG = np.full(token_BGT.shape[:2], token_BGT.shape[2])
    ended_BG = np.zeros(token_BGT.shape[:2], bool)
    for index in np.ndindex(*length_BG.shape):
        ids = token_BGT[index].tolist()
        for count in range(1, len(ids) + 1):
            text = Letters().decode(ids[:count])
            if ids[count - 1] in eos_ids or any(stop in text for stop in stops):
                length_BG[index], ended_BG[index] = count, True
                break
    return length_BG, ended_BG


STOPPING = SamplingParams(completions_per_prompt=6, max_new_tokens=8, stop=STOPS)


def stopped(eos_ids=EOS_IDS, sampling=STOPPING):
    engine = JaxEngine(SPEC, eos_ids=eos_ids, pad_id=3, batch_completions=24, chunk_tokens=5, tokenizer=Letters())
    engine.sync(on_mesh(PARAMS), 0)
    return sample(engine, PROMPTS[:4], sampling)[0]


def test_completions_end_with_the_token_that_completes_a_stop():
    rollout = stopped()
    assert_trainer_agrees(rollout)
    # The noise of a row does not depend on what has ended: nothing else differs.
    whole_BGT = stopped((99,), dataclasses.replace(STOPPING, stop=())).token_BGT
    length_BG, ended_BG = ends_of(whole_BGT, EOS_IDS, STOPS)
    np.testing.assert_array_equal(rollout.length_BG, length_BG)
    np.testing.assert_array_equal(rollout.finish_BG == FinishReason.STOP, ended_BG)
    np.testing.assert_array_equal(rollout.token_BGT, np.where(rollout.mask_BGT, whole_BGT, 3))
    assert (length_BG < ends_of(whole_BGT, EOS_IDS, ())[0]).sum() > 5, "stops end what nothing else would"
    last_BG = np.take_along_axis(rollout.token_BGT, length_BG[:, :, None] - 1, axis=2)[:, :, 0]
    by_stop_BG = ended_BG & ~np.isin(last_BG, EOS_IDS)
    assert (by_stop_BG & (length_BG == 8)).any(), "a stop with the last token is no truncation"
    assert (by_stop_BG & ~np.isin(last_BG, (4, 14, 15))).any(), "a stop over several tokens"
    with jax.set_mesh(make_mesh(data=2, tensor=2)):
        np.testing.assert_array_equal(stopped().token_BGT, rollout.token_BGT)


def test_one_completion_is_shown_as_it_comes():
    sampling = SamplingParams(completions_per_prompt=1, max_new_tokens=12, stop=("aba",))
    with jax.set_mesh(make_mesh(data=2)):
        engine = JaxEngine(SPEC, eos_ids=EOS_IDS, pad_id=3, batch_completions=2, chunk_tokens=5, tokenizer=Letters())
        engine.sync(on_mesh(PARAMS), 0)
        endings = set()
        for seed in range(8):
            key = jax.random.key(seed)
            shown = list(engine.stream(PROMPTS[1], sampling=sampling, key=key))
            [group] = engine.generate(PROMPTS[1:2], sampling=sampling, key=key)
            ids, finish = shown[-1]
            assert ids == group.token_GT[0, : group.length_G[0]].tolist()
            assert finish == group.finish_G[0]
            assert [(ids[:count], None) for count in (5, 10)][: len(shown) - 1] == shown[:-1]
            endings.add((len(shown), finish))
        assert {FinishReason.STOP, FinishReason.LENGTH} == {finish for _, finish in endings}
        assert len({count for count, _ in endings}) > 1


def test_temperature_0_takes_the_likeliest_tokens():
    sampling = SamplingParams(completions_per_prompt=2, max_new_tokens=5, temperature=0.0)
    rollout, _ = sample(make_engine(eos_ids=(99,)), [PROMPTS[3]], sampling)
    wanted = likeliest_continuations(PROMPTS[3], 5)
    np.testing.assert_array_equal(rollout.token_BGT[0], [wanted, wanted])
    np.testing.assert_array_equal(rollout.logprob_BGT, 0)


def test_completions_end_at_any_end_of_sequence_and_at_the_limit():
    rollout, _ = sampled()
    T = rollout.token_BGT.shape[2]
    last_tokens = set()
    for token_T, length, finish in zip(
        rollout.token_BGT.reshape(-1, T), rollout.length_BG.reshape(-1), rollout.finish_BG.reshape(-1), strict=True
    ):
        assert not set(token_T[: length - 1]) & set(EOS_IDS)
        assert set(token_T[length:]) <= {3}
        if finish == FinishReason.STOP:
            last_tokens.add(int(token_T[length - 1]))
        else:
            assert (finish, length) == (FinishReason.LENGTH, T)
            assert token_T[-1] not in EOS_IDS
    assert last_tokens == set(EOS_IDS)
    assert set(rollout.finish_BG.reshape(-1)) == {FinishReason.STOP, FinishReason.LENGTH}
    assert T in rollout.length_BG[rollout.finish_BG == FinishReason.LENGTH]


def test_nothing_stands_behind_the_end_of_a_completion():
    rollout, groups = sampled()
    assert not rollout.mask_BGT.all()
    np.testing.assert_array_equal(rollout.logprob_BGT[~rollout.mask_BGT], 0)
    assert (rollout.logprob_BGT[rollout.mask_BGT] < 0).all()
    for group in groups:
        np.testing.assert_array_equal(group.truncated_logprob_GT[~rollout.mask_BGT[group.index]], 0)


def test_each_prompt_is_answered_once_and_fill_is_not_returned():
    _, groups = sampled()
    assert sorted(group.index for group in groups) == list(range(5))
    assert {group.token_GT.shape for group in groups} == {(4, 6)}
    assert list(make_engine().generate([], sampling=SAMPLING, key=KEY)) == []


def test_truncated_sampling_reports_both_logprobs():
    sampling = dataclasses.replace(SAMPLING, temperature=1.2, top_k=4, top_p=0.9)
    rollout, groups = sample(make_engine(pad_id=0), sampling=sampling)
    assert_trainer_agrees(rollout, 1.2)
    # A sampled pad id inside a completion is a token like any other.
    assert (rollout.token_BGT == 0)[rollout.mask_BGT].any()
    ordered = sorted(groups, key=lambda group: group.index)
    truncated_BGT = np.stack([group.truncated_logprob_GT for group in ordered])
    gain = (truncated_BGT - rollout.logprob_BGT)[rollout.mask_BGT]
    # What is left holds less than everything, and at most 4 tokens hold at least as much as 4 of 16 equal ones.
    assert (gain > 0).all()
    assert gain.max() < np.log(4) + 1e-5


def test_the_key_decides_the_noise():
    rollout, _ = sampled()
    again, _ = sample(make_engine())
    other, _ = sample(make_engine(), key=jax.random.key(8))
    np.testing.assert_array_equal(again.token_BGT, rollout.token_BGT)
    np.testing.assert_array_equal(again.logprob_BGT, rollout.logprob_BGT)
    assert (other.token_BGT != rollout.token_BGT)[:, :, 0].mean() > 0.3


def test_steps_completions_groups_and_batches_have_their_own_noise():
    # Equal logits everywhere, so tokens are the noise and nothing else.
    rollout, _ = sample(make_engine(PARAMS | {"unembedding": np.zeros_like(PARAMS["unembedding"])}))
    token_BGT, mask_BGT = rollout.token_BGT, rollout.mask_BGT
    np.testing.assert_allclose(rollout.logprob_BGT[mask_BGT], -np.log(16), rtol=1e-5)
    pairs = {
        "steps": (np.s_[:, :, 1:], np.s_[:, :, :-1]),
        "completions": (np.s_[:, 1:], np.s_[:, :-1]),
        "groups": (np.s_[1:3], np.s_[:2]),
        "batches": (np.s_[3:], np.s_[:2]),
    }
    for name, (one, other) in pairs.items():
        both = mask_BGT[one] & mask_BGT[other]
        assert both.sum() > 10
        assert np.mean((token_BGT[one] == token_BGT[other])[both]) < 0.4, name


def test_sync_changes_what_is_sampled_and_the_version():
    rollout, groups = sampled()
    engine = make_engine()
    engine.sync(on_mesh(random_params(seed=1)), 5)
    changed, changed_groups = sample(engine)
    assert {group.policy_version for group in groups} == {0}
    assert {group.policy_version for group in changed_groups} == {5}
    assert (changed.token_BGT != rollout.token_BGT)[:, :, 0].mean() > 0.3
    mask_BGT = changed.mask_BGT
    wanted_BGT = trainer_logprobs(changed, 1.0, random_params(seed=1))
    np.testing.assert_allclose(changed.logprob_BGT[mask_BGT], wanted_BGT[mask_BGT], rtol=0, atol=1e-5)


def test_a_sync_in_the_middle_waits_for_the_next_call():
    engine = make_engine()
    running = engine.generate(PROMPTS, sampling=SAMPLING, key=KEY)
    engine.sync(on_mesh(random_params(seed=1)), 1)
    groups = [next(running)]
    engine.sync(on_mesh(random_params(seed=2)), 2)
    rollout = assemble(groups + list(running), PROMPTS, pad_id=0)
    assert rollout.policy_version == 0
    np.testing.assert_array_equal(rollout.token_BGT, sampled()[0].token_BGT)


def test_groups_come_as_soon_as_they_end_and_stay_as_they_were(monkeypatch):
    chunks = []
    advance = jax_engine.advance
    monkeypatch.setattr(jax_engine, "advance", lambda *args, **kwargs: chunks.append(1) or advance(*args, **kwargs))
    engine = make_engine(eos_ids=tuple(range(8)), batch_completions=16)
    sampling = SamplingParams(completions_per_prompt=2, max_new_tokens=24)
    seen, copies = [], []
    for group in engine.generate(PROMPTS, sampling=sampling, key=KEY):
        seen.append((group, len(chunks)))
        copies.append(jax.tree.map(np.array, group))
    for group, chunk in seen:
        assert 2 * (chunk - 1) < group.length_G.max() <= 2 * chunk
    assert sorted(group.index for group, _ in seen) == list(range(5))
    # Some groups come before the others have ended, and sampling stops where the last one has.
    assert seen[0][1] < seen[-1][1] == len(chunks) < 12
    for (group, _), copied in zip(seen, copies, strict=True):
        jax.tree.map(np.testing.assert_array_equal, group, copied)


def test_one_completion_at_a_time_is_sampled_to_its_end():
    sampling = dataclasses.replace(SAMPLING, completions_per_prompt=1)
    rollout, groups = sample(make_engine(batch_completions=1), sampling=sampling)
    assert [group.index for group in groups] == list(range(5))
    assert_trainer_agrees(rollout)
    ended_BG = np.isin(rollout.token_BGT, EOS_IDS)[np.arange(5), 0, rollout.length_BG[:, 0] - 1]
    np.testing.assert_array_equal(ended_BG, rollout.finish_BG[:, 0] == FinishReason.STOP)
    np.testing.assert_array_equal(rollout.length_BG[:, 0][~ended_BG], 6)
    assert not ended_BG.all()


def likeliest_continuations(prompt, count):
    """By one forward pass over an unpadded row for every token."""
    row = list(prompt)
    for _ in range(count):
        whole_NS = jnp.array([row + [0] * (20 - len(row))])
        index_NS = jnp.arange(20)[None]
        hidden_NSD = forward(PARAMS, SPEC, whole_NS, index_NS, (index_NS < len(row)).astype(jnp.int32))
        row.append(int(np.argmax(np.asarray(hidden_NSD[0, len(row) - 1]) @ PARAMS["unembedding"])))
    return row[len(prompt) :]


forward = jax.jit(decoder.forward, static_argnames="spec")


def test_the_likeliest_tokens_do_not_depend_on_bucket_or_batch():
    sampling = SamplingParams(completions_per_prompt=2, max_new_tokens=5, top_k=1)
    long = [1, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13]
    engine = make_engine(eos_ids=(99,))
    alone, _ = sample(engine, [PROMPTS[3]], sampling)
    together, groups = sample(engine, [long, PROMPTS[3], PROMPTS[0]], sampling)
    assert (alone.prompt_BP.shape[1], together.prompt_BP.shape[1]) == (8, 16)
    wanted = likeliest_continuations(PROMPTS[3], 5)
    np.testing.assert_array_equal(alone.token_BGT[0], [wanted, wanted])
    np.testing.assert_array_equal(together.token_BGT[1], [wanted, wanted])
    np.testing.assert_array_equal(together.token_BGT[0, 0], likeliest_continuations(long, 5))
    np.testing.assert_allclose(alone.logprob_BGT[0], together.logprob_BGT[1], rtol=0, atol=1e-5)
    for group in groups:
        np.testing.assert_allclose(group.truncated_logprob_GT, 0, atol=1e-6)
    assert_trainer_agrees(together)


@pytest.mark.parametrize("sizes", [{"data": 2, "fsdp": 2, "tensor": 2}, {"tensor": 2, "context": 4}], ids=str)
def test_a_sharded_engine_samples_the_same_tokens(sizes):
    prompts = PROMPTS[:4]
    rollout, _ = sample(make_engine(batch_completions=16, chunk_tokens=16), prompts)
    with jax.set_mesh(make_mesh(**sizes)):
        engine = make_engine(batch_completions=16, chunk_tokens=16)
        sharded, _ = sample(engine, prompts)
        one_prompt, groups = sample(engine, prompts[:1])
    for name in ("token_BGT", "length_BG", "finish_BG"):
        np.testing.assert_array_equal(getattr(sharded, name), getattr(rollout, name))
    np.testing.assert_allclose(sharded.logprob_BGT, rollout.logprob_BGT, rtol=0, atol=1e-5)
    # A batch is filled up until it divides over the devices.
    assert [group.index for group in groups] == [0]
    assert_trainer_agrees(one_prompt)


def test_a_sharded_engine_records_the_experts_of_every_token():
    spec, prompts = dataclasses.replace(SPEC, experts=Experts(4, 2, 6)), PROMPTS[:4]
    params = random_params(spec=spec)

    def recorded():
        engine = JaxEngine(spec, eos_ids=EOS_IDS, pad_id=3, batch_completions=16, record_experts=True)
        engine.sync(on_mesh(params, spec), 0)
        return list(engine.generate(prompts, sampling=SAMPLING, key=KEY))

    wanted = recorded()
    with jax.set_mesh(make_mesh(context=4, expert=2)):
        got = recorded()
    for one, other in zip(got, wanted, strict=True):
        for name in ("token_GT", "length_G", "prompt_choice_PLA"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        read_GT = np.arange(SAMPLING.max_new_tokens) < other.length_G[:, None] - 1
        assert one.choice_GTLA.shape == (4, 6, 2, 2)
        np.testing.assert_array_equal(one.choice_GTLA[read_GT], other.choice_GTLA[read_GT])


@pytest.fixture
def compilations():
    events = []

    def listen(event, *args, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_later_calls_compile_nothing(compilations):
    engine = make_engine()
    sample(engine)
    compilations.clear()
    jax.jit(lambda x: x * 3 + 1)(jnp.float32(2))
    assert compilations
    other = on_mesh(random_params(seed=1))
    compilations.clear()
    engine.sync(other, 1)
    sample(engine, [prompt[::-1] for prompt in PROMPTS[::-1]])
    sample(engine, PROMPTS[1:4])
    assert compilations == []


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="eos_ids: got none, wanted at least one id that ends a completion"):
        JaxEngine(SPEC, eos_ids=(), pad_id=0, batch_completions=4)
    engine = JaxEngine(SPEC, eos_ids=EOS_IDS, pad_id=0, batch_completions=4)
    stopping = dataclasses.replace(SAMPLING, stop=("a",))
    with pytest.raises(AssertionError, match="stop texts are found by the bytes of the tokenizer's tokens"):
        make_engine().generate(PROMPTS, sampling=stopping, key=KEY)
    with pytest.raises(AssertionError, match=r"sync\(\) comes before generate\(\)"):
        list(engine.generate(PROMPTS, sampling=SAMPLING, key=KEY))
