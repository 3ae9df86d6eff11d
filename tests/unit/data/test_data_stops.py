"""Stop texts against their definition: a completion ends where its decoded text first contains one."""

import functools

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from grpo_jax.data.huggingface import BYTE_OF_CHARACTER, SIDE_FILES, HuggingFaceTokenizer, TokenizerFiles
from grpo_jax.data.publication import published_files
from grpo_jax.data.stops import before_stop, settled, stop_table
from grpo_jax.data.tokenizer import ByteTokenizer, CharacterTokenizer

MERGES = ["a b", "Ċ Ċ", "ab Ċ", "Ã ©", "b Ċ", "Ġ a", "© Ċ", "a ab"]


def bpe(normalizer=None, decoder=None):
    """A byte-level tokenizer with tokens that hold, begin, end and cross the stops below."""
    vocabulary = dict(BYTE_OF_CHARACTER)
    for merge in MERGES:
        vocabulary[merge.replace(" ", "")] = len(vocabulary)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoder or decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.add_tokens([tokenizers.AddedToken("<think>a", normalized=False), "x y"])
    sides = {name: {} for name in SIDE_FILES} | {"tokenizer_config.json": {"eos_token": "<eos>"}}
    return HuggingFaceTokenizer(TokenizerFiles("made", tokenizer, sides))


TOKENIZERS = {
    "characters": CharacterTokenizer(),
    "bytes": ByteTokenizer(),
    "bpe": bpe(),
    "published characters": HuggingFaceTokenizer(published_files("characters")),
    "published bytes": HuggingFaceTokenizer(published_files("bytes")),
}
CASES = [
    ("characters", ("=",)),
    ("characters", ("12", "</think>1", "1=1")),
    ("published characters", ("12", "</think>1", "1=1")),
    ("bytes", ("\n",)),
    ("bytes", ("aba", "\n\n", "é\n", "</answer>")),
    ("published bytes", ("aba", "\n\n", "é\n", "</answer>")),
    ("bpe", ("\n",)),
    ("bpe", ("\n\n",)),
    ("bpe", ("aba", "aab\n", "é", "bb")),
    ("bpe", ("é\n", "<think>aab", "x y", " a a")),
    ("bpe", ("日本",)),
]


@functools.cache
def table_of(name, stops):
    tokenizer = TOKENIZERS[name]
    return stop_table(tokenizer, stops, tokenizer.vocab_size + 3)


def telling_ids(name, stops):
    """Ids of which some sequences come near the stops: those that share a byte with one."""
    wanted = set("".join(stops).encode())
    pieces = TOKENIZERS[name].token_bytes()
    return [index for index, piece in enumerate(pieces) if wanted & set(piece)]


def first_end(tokenizer, stops, ids):
    """By the definition: the number of tokens after which the decoded text first contains a stop."""
    texts = (tokenizer.decode(ids[:count]) for count in range(1, len(ids) + 1))
    return next((n for n, text in enumerate(texts, start=1) if any(stop in text for stop in stops)), None)


def table_end(table, ids):
    state = 0
    for count, index in enumerate(ids, start=1):
        state = table[state, index]
        if state == len(table) - 1:
            return count
    return None


@pytest.mark.parametrize(("name", "stops"), CASES)
def test_the_table_ends_completions_where_the_definition_does(name, stops):
    tokenizer, table = TOKENIZERS[name], table_of(name, stops)
    near, ends = telling_ids(name, stops), []

    @given(st.lists(st.one_of(st.sampled_from(near), st.integers(0, tokenizer.vocab_size + 2)), max_size=12))
    def check(ids):
        ends.append(first_end(tokenizer, stops, ids))
        assert table_end(table, ids) == ends[-1]

    check()
    for stop in stops:
        ids = tokenizer.encode(f"{stop}{stop}")
        assert table_end(table, ids) == first_end(tokenizer, stops, ids) is not None


def test_stops_over_several_tokens_are_found():
    tokenizer, table = TOKENIZERS["bpe"], table_of("bpe", ("aba", "aab\n", "é", "bb"))
    token = tokenizer._tokenizer.token_to_id
    assert table_end(table, [token("a"), token("abĊ")]) == 2
    assert table_end(table, [token("ab"), token("aab")]) == 2
    assert table_end(table, [token("Ã"), token("a"), token("Ã"), token("©Ċ")]) == 4
    assert table_end(table, [token("ab"), tokenizer.eos_ids[0], token("bĊ")]) == 3, "what has no text changes nothing"
    assert table_end(table, [token("ab"), tokenizer.vocab_size + 1, token("bĊ")]) is None


def test_the_last_state_is_never_left():
    for name, stops in CASES:
        table = table_of(name, stops)
        assert (table[-1] == len(table) - 1).all()
        assert table.shape[1] == TOKENIZERS[name].vocab_size + 3


@pytest.mark.parametrize("name", TOKENIZERS)
def test_bytes_of_tokens_add_up_to_the_text(name):
    tokenizer = TOKENIZERS[name]
    pieces = tokenizer.token_bytes()
    assert len(pieces) == tokenizer.vocab_size
    generator = np.random.default_rng(0)
    for _ in range(200):
        ids = generator.integers(tokenizer.vocab_size, size=8).tolist()
        assert b"".join(pieces[index] for index in ids).decode(errors="replace") == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("text", "stops", "wanted"),
    [
        ("87\n88", ("\n",), "87"),
        ("87", ("\n",), "87"),
        ("", ("\n",), ""),
        ("\n", ("\n",), ""),
        ("a, b; c", (";", ","), "a"),
        ("a b", (), "a b"),
    ],
)
def test_what_is_left_of_a_text(text, stops, wanted):
    assert before_stop(text, stops) == wanted


@given(
    st.lists(st.sampled_from([*b"ab\n", *"é日".encode()]), max_size=8),
    st.lists(st.sampled_from([*b"ab\n", *"é日".encode()]), max_size=8),
    st.lists(st.sampled_from(["\n", "ab", "aab", "ba\n", "é", "bb日"]), max_size=3, unique=True),
)
def test_what_is_settled_never_changes(first, later, stops):
    tokenizer = ByteTokenizer()
    text = tokenizer.decode(first)
    if all(stop not in text for stop in stops):
        assert before_stop(tokenizer.decode(first + later), stops).startswith(settled(text, stops))


def test_all_is_settled_that_can_be():
    assert settled("aab", ["b\n", "ab\nx"]) == "a"
    assert settled("ab", ["b"]) == "ab", "a stop of one character has no beginning"
    assert settled(ByteTokenizer().decode("aé".encode()[:-1]), []) == "a"
    assert settled(ByteTokenizer().decode("aaé".encode()[:-1]), ["aé"]) == "a"


def test_a_stop_that_can_never_be_written_is_refused():
    with pytest.raises(ValueError, match=r"'\\n' would never be found: the characters tokenizer has no token for"):
        stop_table(CharacterTokenizer(), ["\n"], 32)
    with pytest.raises(ValueError, match="'e\u0301' would never be found: the tokenizer writes it as 'é'"):
        stop_table(bpe(normalizer=normalizers.NFC()), ["e\u0301"], 300)


@pytest.mark.parametrize(
    "decoder", [decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]), decoders.WordPiece()]
)
def test_a_tokenizer_whose_tokens_have_no_bytes_of_their_own_is_refused(decoder):
    kind = "Sequence" if isinstance(decoder, decoders.Sequence) else "WordPiece"
    with pytest.raises(ValueError, match=f"made decodes by {kind}, wanted ByteLevel or Fuse"):
        stop_table(bpe(decoder=decoder), ["a"], 300)
