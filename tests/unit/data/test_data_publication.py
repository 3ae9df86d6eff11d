import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.config import ConfigError
from grpo_jax.data.huggingface import SIDE_FILES, TokenizerFiles
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.tokenizer import CHARACTERS, TAGS, build_tokenizer


@pytest.fixture(scope="module", params=["characters", "bytes"])
def both(request, tmp_path_factory):
    """A built-in tokenizer, and the same one read from its published files."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_files(published_files(request.param), folder)
    return build_tokenizer(request.param), build_tokenizer(str(folder))


@given(st.lists(st.sampled_from([*CHARACTERS, *TAGS])).map("".join))
def test_built_in_tokenizers_keep_their_ids(both, text):
    built_in, published = both
    assert published.encode(text) == built_in.encode(text)
    assert published.encode_prompt(text) == built_in.encode_prompt(text)
    assert published.decode(built_in.encode(text)) == text


def test_special_tokens_keep_their_ids(both):
    built_in, published = both
    for name in ("pad_id", "bos_id", "eos_ids"):
        assert getattr(published, name) == getattr(built_in, name)


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<" not in text))
def test_every_byte_keeps_its_id(bytes_published, text):
    assert bytes_published.encode(text) == list(text.encode())
    assert bytes_published.decode(list(text.encode())) == text


@pytest.fixture(scope="module")
def bytes_published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    write_files(published_files("bytes"), folder)
    return build_tokenizer(str(folder))


def test_files_come_back_as_they_were(tmp_path):
    files = published_files("characters")
    sides = dict(files.sides) | {"special_tokens_map.json": {"unk_token": "ü"}, "config.json": {"model_type": "llama"}}
    write_files(files._replace(sides=sides, chat_template="{{ 'é' }}\n"), tmp_path)
    again = published_files(str(tmp_path))
    assert again.chat_template == "{{ 'é' }}\n"
    assert again.sides == sides | {"config.json": {}}
    assert json.loads(again.tokenizer.to_str()) == json.loads(files.tokenizer.to_str())


def test_a_text_outside_the_vocabulary_is_named(tmp_path):
    write_files(published_files("characters"), tmp_path)
    published = build_tokenizer(str(tmp_path))
    for encode in (published.encode, published.encode_prompt):
        with pytest.raises(ConfigError, match=r"data\.tokenizer: .*tokenizer\.json cannot write 'été\?': .* Wanted"):
            encode("été?")


def test_side_files_hold_objects(tmp_path):
    write_files(published_files("characters"), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json holds a list, wanted a JSON object"):
        build_tokenizer(str(tmp_path))


def test_a_tokenizer_without_an_end_is_not_written(tmp_path):
    files = published_files("bytes")
    nothing = TokenizerFiles(files.source, files.tokenizer, {name: {} for name in SIDE_FILES})
    with pytest.raises(ConfigError, match="no end-of-sequence token is named"):
        write_files(nothing, tmp_path)
