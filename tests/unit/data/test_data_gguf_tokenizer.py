import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.config import ConfigError
from grpo_jax.data.chat import find_template
from grpo_jax.data.gguf_tokenizer import PRE_TOKENIZERS, open_gguf
from grpo_jax.data.publication import write_files
from grpo_jax.data.tokenizer import build_tokenizer, open_files
from tests.unit.data import gguf_files

gguf = pytest.importorskip("gguf")


def write(folder, **changes):
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    template = changes.pop("chat_template", None)
    if template is not None:
        writer.add_chat_template(template)
    gguf_files.add_tokenizer(writer, **changes)
    gguf_files.finish(writer)
    return path


def ids(*tokens):
    return [gguf_files.TOKENS.index(token) for token in tokens]


def test_text_becomes_the_tokens_of_the_file(tmp_path):
    tokenizer = build_tokenizer(str(write(tmp_path)))
    assert tokenizer.encode("abcd ab") == ids("abcd", "Ġab")
    assert tokenizer.encode("12") == ids("1", "2"), "digits stand alone before any merge"
    assert tokenizer.encode_prompt("<|turn|>ab<think>") == ids("<|turn|>", "ab", "<think>")
    assert tokenizer.encode("<think>") == ids("<think>"), "a token of the user is found in every text"
    assert tokenizer.decode(ids("abcd", "Ġab", "<|end|>", "<think>")) == "abcd ab<think>"
    assert tokenizer.vocab_size == len(gguf_files.TOKENS)
    assert (tokenizer.eos_ids, tokenizer.pad_id, tokenizer.bos_id) == ((0,), 0, None)


def test_special_tokens_of_the_file(tmp_path):
    path = write(tmp_path, eot_token_id=1, padding_token_id=2, bos_token_id=3, add_bos_token=True)
    tokenizer = build_tokenizer(str(path))
    assert (tokenizer.eos_ids, tokenizer.pad_id, tokenizer.bos_id) == ((0, 1), 2, 3)
    assert tokenizer.encode_prompt("ab") == [3, *ids("ab")]


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("gpt-2", "12", ["12"]),
        ("smollm", "12", ["1", "2"]),
        ("qwen2", "12", ["1", "2"]),
        ("llama-bpe", "12", ["12"]),
        ("llama-bpe", "1212", ["12", "1", "2"]),
        ("llama-bpe", "abcd", ["abcd"]),
    ],
)
def test_how_words_are_cut(tmp_path, pre, text, tokens):
    assert pre in PRE_TOKENIZERS
    assert build_tokenizer(str(write(tmp_path, pre=pre))).encode(text) == ids(*tokens)


def test_only_llama_3_has_a_first_token_where_the_file_does_not_say(tmp_path):
    assert build_tokenizer(str(write(tmp_path, pre="llama-bpe", add_bos_token=None))).bos_id == 1
    assert build_tokenizer(str(write(tmp_path, pre="gpt-2", add_bos_token=None))).bos_id is None


def test_the_chat_template_and_published_files(tmp_path):
    path = write(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", add_bos_token=True)
    files = open_files(str(path))
    text = find_template(files).render([{"role": "user", "content": "ab"}])
    assert text == "<|turn|>ab<|end|>"
    folder = tmp_path / "published"
    folder.mkdir()
    write_files(files, folder)
    published, direct = build_tokenizer(str(folder)), build_tokenizer(str(path))
    assert find_template(open_files(str(folder))).render([{"role": "user", "content": "ab"}]) == text
    for sample in ("abcd ab 12", text, "<think>"):
        assert published.encode_prompt(sample) == direct.encode_prompt(sample)
        assert published.encode(sample) == direct.encode(sample)
    for name in ("vocab_size", "eos_ids", "pad_id", "bos_id"):
        assert getattr(published, name) == getattr(direct, name)


PIECES = [
    *("<unk>", "<s>", "</s>"),
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *("ab", "bc", "abc", "▁a", "▁ab", "▁▁", "cd", "abcd", "bcd", "dd", "ddd"),
    *"▁abcdé",
]


def pieces(folder, **changes):
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(PIECES) - 259)]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
    values = {"model": "llama", "pre": "default", "tokens": PIECES, "token_type": types, "scores": scores}
    values |= {"merges": None, "eos_token_id": 2, "add_bos_token": None}
    return build_tokenizer(str(write(folder, **values | changes)))


def joined(text):
    """Neighbours are joined into the known piece that comes first among the pieces, the leftmost one of equals."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [(PIECES.index(a + b), n) for n, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in PIECES]
        if not pairs:
            break
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    bytes_of = lambda part: [part] if part in PIECES else [f"<0x{byte:02X}>" for byte in part.encode()]  # noqa: E731
    return [PIECES.index(piece) for part in parts for piece in bytes_of(part)]


@given(st.text("abcd é好\n", max_size=12))
def test_pieces_are_joined_by_score(of_pieces, text):
    assert of_pieces[True].encode(text) == (joined(f" {text}") if text else [])
    assert of_pieces[False].encode(text) == joined(text)
    for tokenizer in of_pieces.values():
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.fixture(scope="module")
def of_pieces(tmp_path_factory):
    """Tokenizers with and without a space in front of texts."""
    return {prefix: pieces(tmp_path_factory.mktemp("pieces"), add_space_prefix=prefix) for prefix in (True, False)}


def test_special_tokens_of_pieces(tmp_path):
    tokenizer = pieces(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,)), "this kind has a first token unless the file says no"
    assert tokenizer.encode_prompt("a</s>")[:1] + tokenizer.encode_prompt("a</s>")[-1:] == [1, 2]
    assert 2 not in tokenizer.encode("a</s>")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, r"holds a tokenizer of kind 'bert', wanted 'gpt2' or 'llama'\. Set data\.tokenizer to"),
        ({"model": "llama"}, r"lacks tokenizer\.ggml\.scores\. Set data\.tokenizer to"),
        ({"eos_token_id": 99}, r"eos_token_id beside .* is 99, wanted an id below 19"),
        ({"pre": "tekken"}, r"cuts texts as 'tekken', wanted one of gpt-2, default, smollm"),
        ({"merges": None}, r"lacks tokenizer\.ggml\.merges\. Set data\.tokenizer to the tokenizer\.json"),
        ({"eos_token_id": None}, r"no end-of-sequence token found beside .*model\.gguf"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        build_tokenizer(str(write(tmp_path, **changes)))


def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"none\.gguf: no such file, wanted a \.gguf file"):
        open_gguf(tmp_path / "none.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUX" + bytes(64))
    with pytest.raises(ConfigError, match=r"broken\.gguf cannot be read as GGUF: .*Fetch the file again"):
        open_gguf(broken)
    whole = write(tmp_path).read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"broken\.gguf cannot be read as GGUF"):
        open_gguf(broken)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"needs the package gguf.*pip install 'grpo-jax\[gguf\]'"):
        open_gguf(broken)
