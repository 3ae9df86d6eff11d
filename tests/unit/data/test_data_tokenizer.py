import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.data.tokenizer import CHARACTERS, TAGS, ByteTokenizer, CharacterTokenizer, build_tokenizer

PIECES = ["<eos>", "<bos>", "<pad>", "<end>", "<turn>", "<s>", *TAGS]


@given(st.lists(st.sampled_from([*CHARACTERS, *TAGS])).map("".join))
def test_characters_round_trip(text):
    tokenizer = CharacterTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= index < tokenizer.vocab_size for index in ids)


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text())).map("".join))
def test_bytes_round_trip(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= index < tokenizer.vocab_size for index in ids)
    assert not {tokenizer.pad_id, tokenizer.bos_id, *tokenizer.eos_ids} & set(ids)


@given(st.lists(st.integers(0, 262)))
def test_any_ids_can_be_decoded(ids):
    assert isinstance(ByteTokenizer().decode(ids), str)
    assert isinstance(CharacterTokenizer().decode([index % 32 for index in ids]), str)


@pytest.mark.parametrize("tokenizer", [CharacterTokenizer(), ByteTokenizer()])
def test_tags_are_single_tokens_and_special_ones_are_left_out(tokenizer):
    ids = tokenizer.encode("<think>1</think><answer>2</answer>")
    assert len(ids) == 6
    framed = [tokenizer.pad_id, tokenizer.bos_id, *ids, *tokenizer.eos_ids, tokenizer.pad_id]
    assert tokenizer.decode(framed) == "<think>1</think><answer>2</answer>"
    assert tokenizer.encode_prompt("1+2=") == [tokenizer.bos_id, *tokenizer.encode("1+2=")]


def test_the_quickstart_vocabulary_has_32_tokens():
    tokenizer = CharacterTokenizer()
    assert tokenizer.vocab_size == 32
    assert len(tokenizer.encode_prompt("417+385=")) == 9
    assert tokenizer.decode([31, *tokenizer.encode("8"), 30]) == "\ufffd8\ufffd", "a spare id must not vanish"


@pytest.mark.parametrize(("text", "unknown"), [("2x", "x"), ("<eos>", "<"), ("1<2", "<")])
def test_an_unknown_character_is_named(text, unknown):
    with pytest.raises(ValueError, match=f"no token for '{unknown}' in '{text}'.*data.tokenizer to 'bytes'"):
        CharacterTokenizer().encode(text)


def test_broken_utf8_is_replaced():
    assert ByteTokenizer().decode([0x31, 0xFF, 0x32]) == "1\ufffd2"


def test_built_in_tokenizers_are_built_by_name():
    assert isinstance(build_tokenizer("characters"), CharacterTokenizer)
    assert isinstance(build_tokenizer("bytes"), ByteTokenizer)


@pytest.mark.parametrize(
    ("name", "hint"), [("character", "Did you mean 'characters'"), ("no/such", r"no tokenizer file at /.*no/such")]
)
def test_another_name_is_refused_with_the_choices(name, hint):
    with pytest.raises(ValueError, match=rf"'characters', 'bytes' or the path of a tokenizer\.json, .*{hint}"):
        build_tokenizer(name)


def save(folder, *, bos_in_front=False, **side_files):
    """Writes a byte-level tokenizer with the special tokens <s>, <end>, <turn>, <pad> and the plain token <think>."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([], trainer)
    inner.add_special_tokens(["<s>", "<end>", "<turn>", "<pad>"])
    inner.add_tokens(["<think>"])
    if bos_in_front:
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
        )
    inner.enable_truncation(4)
    inner.save(str(folder / "tokenizer.json"))
    for name, values in side_files.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return inner


@pytest.mark.parametrize("name", ["tokenizer.json", ""])
def test_special_tokens_come_from_the_files_beside(tmp_path, name):
    inner = save(
        tmp_path,
        generation_config={"eos_token_id": [257, 258], "pad_token_id": None},
        tokenizer_config={"eos_token": {"content": "<end>"}, "bos_token": "<s>", "pad_token": "<pad>"},
    )
    tokenizer = build_tokenizer(str(tmp_path / name))
    assert (tokenizer.vocab_size, tokenizer.eos_ids, tokenizer.pad_id) == (261, (257, 258), 259)
    assert inner.token_to_id("<turn>") == 258
    assert tokenizer.bos_id is None, "a bos token that nothing puts in front of texts belongs to no prompt"


def test_every_file_may_name_ends_and_padding_may_be_one_of_them(tmp_path):
    save(
        tmp_path,
        generation_config={"eos_token_id": 258},
        tokenizer_config={"eos_token": "<end>"},
        config={"eos_token_id": [258, 259], "pad_token_id": -1},
    )
    tokenizer = build_tokenizer(str(tmp_path))
    assert tokenizer.eos_ids == (258, 257, 259), "that of generation_config.json ends demonstrations"
    assert tokenizer.pad_id == 258, "what config.json says of padding is no token"


def test_in_a_chat_the_template_writes_the_token_in_front(tmp_path):
    save(tmp_path, bos_in_front=True, tokenizer_config={"eos_token": "<end>", "bos_token": "<s>"})
    chat, plain = (build_tokenizer(str(tmp_path), chat=chat) for chat in (True, False))
    assert (chat.bos_id, plain.bos_id) == (None, 256)
    assert chat.encode_prompt("1") == chat.encode("1") == plain.encode_prompt("1")[1:]
    assert chat.encode_prompt("<s>1") == plain.encode_prompt("<s>1")
    assert chat.decode([256, *chat.encode("1")]) == "1", "it is left out of texts all the same"


@pytest.mark.parametrize(
    ("post_processor", "added", "expected"),
    [(True, None, 256), (False, None, None), (False, True, 256), (True, False, None)],
)
def test_the_token_in_front_of_prompts(tmp_path, post_processor, added, expected):
    values = {"eos_token": "<end>", "bos_token": "<s>"} | ({} if added is None else {"add_bos_token": added})
    save(tmp_path, bos_in_front=post_processor, tokenizer_config=values)
    tokenizer = build_tokenizer(str(tmp_path))
    assert tokenizer.bos_id == expected
    front = [] if expected is None else [expected]
    assert tokenizer.encode_prompt("1+2") == front + tokenizer.encode("1+2")
    assert tokenizer.encode_prompt("<s>1") == [256, *tokenizer.encode("1")], "never twice"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_round_trips_and_is_never_cut(huggingface, text):
    ids = huggingface.encode(text)
    assert huggingface.decode(ids) == text


@pytest.fixture(scope="module")
def huggingface(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save(folder, special_tokens_map={"eos_token": "<end>"})
    return build_tokenizer(str(folder))


def test_special_tokens_in_a_text_are_tokens_in_prompts_alone(huggingface):
    assert huggingface.encode_prompt("<turn>1<end>")[::2] == [258, 257]
    literal = huggingface.encode("<turn>1<end>")
    assert not {257, 258} & set(literal)
    assert huggingface.decode(literal) == "<turn>1<end>"
    assert huggingface.encode("<think>") == [260]


def test_decoding_keeps_tags_and_shows_unknown_ids(huggingface):
    one = huggingface.encode("1")
    assert huggingface.pad_id == 257, "without a pad token, the first eos fills rows"
    assert huggingface.decode([260, *one, 257, 257]) == "<think>1"
    assert huggingface.decode([*one, 5000, *one]) == "1\ufffd1"


@pytest.mark.parametrize(
    ("side_files", "message"),
    [
        ({}, r"no end-of-sequence token found beside .*Put 'eos_token_id' into generation_config\.json"),
        (
            {"tokenizer_config": {"eos_token": "<no>"}},
            r"tokenizer_config\.json names the token '<no>'.*belong together",
        ),
        ({"generation_config": {"eos_token_id": 999}}, r"eos_token_id beside .* is 999, wanted an id below 261"),
        ({"tokenizer_config": {"eos_token": "<end>", "add_bos_token": True}}, r"add_bos_token is true .*'bos_token'"),
    ],
)
def test_special_tokens_that_do_not_fit_are_refused(tmp_path, side_files, message):
    save(tmp_path, **side_files)
    with pytest.raises(ValueError, match=message):
        build_tokenizer(str(tmp_path))


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        build_tokenizer(str(tmp_path))
    save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not valid JSON"):
        build_tokenizer(str(tmp_path))
