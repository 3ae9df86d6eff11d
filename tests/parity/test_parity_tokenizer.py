"""Token for token what transformers gives, on vocabularies made here."""

import json

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from grpo_jax.data.chat import find_template
from grpo_jax.data.tokenizer import build_tokenizer, open_files

transformers = pytest.importorskip("transformers")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. What is 12 + 34? It's 46, isn't it?",
    "def f(x):\n    return x ** 2  # squares\n\n\nprint(f(10))",
    "Élan naïve façade über straße, 你好\uff0c世界\uff01 Привет, мир. مرحبا 🙂🙃",
] * 3

SPECIAL = ["<s>", "<|end|>", "<|turn|>", "<|pad|>"]

TEXTS = [
    "",
    " ",
    "What is 12+34?",
    "  two  spaces\tand a tab \n\n\nlines\r\n",
    "Numbers 1234567890, 3.14159, -7, 1e-9, ½ and Ⅷ, ٣٤٥",
    "It's naïve: DON'T we'll I'D",
    "e\u0301 against \u00e9, \ufb01 ligature, \u200b\u200d zero width",
    "你好\uff0c世界\uff01 🙂🏽👩\u200d🔬 Привет",
    "<|turn|>user\nhi<|end|>",
    "in<|end|>side <|end|> spaces  <s> <think>1</think>",
    "<|en d|><|end <|turn|",
    "\x00\x07\x7f \ufffd",
    "x" * 200,
]


def byte_level(pattern=None, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def with_byte_fallback():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", *SPECIAL, *(f"<0x{value:02X}>" for value in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, limit_alphabet=40, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    # The 256 bytes must be pieces of the vocabulary and not added tokens, which texts could name.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

KINDS = {
    "byte level": byte_level,
    "byte level, runs of three digits": lambda: byte_level(LLAMA3),
    "byte level, composed characters": lambda: byte_level(LLAMA3.replace("{1,3}", ""), normalizers.NFC()),
    "byte fallback": with_byte_fallback,
}


def save(folder, kind, *, bos=False, template=None):
    """Writes the files as transformers does, and returns its tokenizer."""
    inner = KINDS[kind]()
    inner.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
        )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<|end|>", pad_token="<|pad|>"
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_those_of_transformers(tmp_path, kind, bos):
    theirs = save(tmp_path, kind, bos=bos)
    ours = build_tokenizer(str(tmp_path))
    assert ours.vocab_size == len(theirs)
    assert (ours.eos_ids, ours.pad_id) == ((theirs.eos_token_id,), theirs.pad_token_id)
    assert ours.bos_id == (theirs.bos_token_id if bos else None)
    for text in TEXTS:
        assert ours.encode_prompt(text) == theirs(text)["input_ids"], text
        plain = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ours.encode(text) == plain, text
        assert ours.decode(plain) == theirs.decode(plain, clean_up_tokenization_spaces=False), text


CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|turn|>system\nYou are helpful.<|end|>\n' }}{% endif %}"
    "{{ '<|turn|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant\n' }}{% endif %}"
)

TRIMMED = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{%- if system %}
<|turn|>system
{{ system }}<|end|>
{%- endif %}
{%- if tools is not none %}{{ raise_exception("no tools here") }}{% endif %}
{% for message in messages %}
    {%- if message['role'] not in ('user', 'assistant') %}
        {{- raise_exception("what is a " ~ message['role'] ~ "?") }}
    {%- endif %}
    {% if loop.index > 6 %}
        {% break %}
    {% endif %}
    {{- '<|turn|>' + message['role'] + '\n\n' + message['content'] | trim + eos_token }}
{% endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\n\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

ELABORATE = """
{%- set ns = namespace(count=0, found=false) %}
{% for message in messages %}
    {% set ns.count = ns.count + 1 %}
    {% if message.role == "assistant" %}
        {% generation %}
            {{ message.content }}
        {% endgeneration %}
    {% else %}
  {{ message | tojson }}
  {{ {"ünï": [1, 2.5, none, true], "a<b": "&'"} | tojson(indent=2, sort_keys=true) }}
    {% endif %}
{% endfor %}
{{ ns.count }} {{ unk_token is defined }} {{ pad_token }} {{ messages | map(attribute='role') | join(', ') }}
{%- for name in range(3) %}{{ name }}{% if not loop.last %}{% continue %}{% endif %}!{% endfor %}
"""

CHATS = [
    [{"role": "user", "content": " What is 12+34?\n"}],
    [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": "<|end|> <think> \"q\" 'a' 你好 {{ 1 }}"},
    ],
    [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": " two "},
        {"role": "user", "content": "three"},
    ],
]


@pytest.mark.parametrize("generation_prompt", [False, True])
@pytest.mark.parametrize("template", [CHATML, TRIMMED, ELABORATE], ids=["chatml", "trimmed", "elaborate"])
@pytest.mark.parametrize("bos", [False, True])
def test_chats_are_those_of_transformers(tmp_path, template, bos, generation_prompt):
    theirs = save(tmp_path, "byte level", bos=bos, template=template)
    ours, ours_in_chat = find_template(open_files(str(tmp_path))), build_tokenizer(str(tmp_path), chat=True)
    for chat in CHATS:
        for variables in ({}, {"enable_thinking": False}):
            settings = {"add_generation_prompt": generation_prompt, **variables}
            text = ours.render(chat, **settings)
            assert text == theirs.apply_chat_template(chat, tokenize=False, **settings)
            assert ours_in_chat.encode_prompt(text) == theirs.apply_chat_template(chat, **settings)["input_ids"]
