r"""Evaluates a policy: pass@k and maj@k with confidence intervals, in all and by category.

python -m grpo_jax.evaluate --model MODEL [--config FILE.py] [...]
python -m grpo_jax.evaluate --endpoint http://HOST:PORT/v1 --endpoint_model NAME --config FILE.py [...]

  --model MODEL         a run folder, for the policy of its newest checkpoint; a folder with config.json and safetensors
                        files; a .gguf file; a folder that grpo_jax.convert wrote; smollm2-135m
  --config FILE.py      the configuration whose problems, prompts, verifiers and sampling are used. A run folder brings
                        its own. --config.KEY=VALUE changes either. A model comes with its own tokenizer, unless
                        --config.data.tokenizer names another one
  --split SPLIT         test (default), validation, train, or all: every row of data.path
  --max_problems N      a fair sample of N problems, the same for every model and seed
  --samples N           completions of each problem (default: evaluation.test_samples_per_problem)
  --k 1,4,8             for which k pass@k and maj@k are estimated, each at most N (default: 1 and N)
  --temperature T       in the place of rollout.temperature; 0 takes the likeliest token every time
  --seed S              decides what is drawn (default: the configuration's, with which a run's own test is repeated)
  --category COLUMN     scores for each value of a column, too; a path such as extra.level reaches into it

  --endpoint URL        asks a server that speaks OpenAI's protocol (vLLM, SGLang, llama.cpp) in the place of a model
  --endpoint_model NAME             the model's name there
  --endpoint_api API                completions or chat (default: chat where data.chat is True)
  --endpoint_concurrency N          requests at one time (default: 16)
  --endpoint_timeout SECONDS        for one request (default: 600)
  --endpoint_retries N              further attempts when the server is busy or gone (default: 5)
  --endpoint_key_env NAME           environment variable that holds the key; it is sent to that server and kept nowhere

  --out FOLDER          gets results.json and samples.jsonl with every completion and verdict
  --json FILE           gets the results as JSON; "-" writes it to standard output and nothing else

Errors of the judge are left out and counted. Exit status: 0 done, 2 bad command line, configuration, model or server,
3 no usable checkpoint, 5 the run still goes on, 6 checkpoint and configuration differ, 7 a file cannot be written.
"""

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import jax
from absl import flags

import grpo_jax
from grpo_jax import cli
from grpo_jax.config import ColdStartConfig, ConfigError, RunConfig, from_nested
from grpo_jax.data.installed import located
from grpo_jax.data.splits import SPLITS, Split
from grpo_jax.io import score_table
from grpo_jax.io.display import tracked
from grpo_jax.io.evaluation_folder import open_records, write_records
from grpo_jax.io.run_folder import read_json, write_json
from grpo_jax.parallel.mesh import make_mesh
from grpo_jax.rollout.endpoint import Endpoint, EndpointConfig
from grpo_jax.rollout.engine import Engine, FinishedGroup, SamplingParams, sampling_params
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import assessment, evaluation, setup
from grpo_jax.training.saved import SavedModel, open_saved, placed
from grpo_jax.verifiers.pool import open_pool

HELP = "See the module's docstring."


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for, checked.

    Attributes:
        config: The validated configuration.
        sampling: How to draw.
        seed: Decides what is drawn.
        split: Name of the problems, ``all`` included.
        category: Column of the categories, or nothing.
        ks: For which k.
    """

    config: RunConfig
    sampling: SamplingParams
    seed: int
    split: str
    category: str
    ks: tuple[int, ...]


class _Watched:
    """An engine that shows how many problems are done."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def sync(self, params: Any, version: int) -> None:
        self._engine.sync(params, version)

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        groups = self._engine.generate(prompts, sampling=sampling, key=key)
        return iter(tracked(groups, len(prompts)))


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    command = cli.parse(sys.argv, _flags(), config_required=False)
    given = command.flags
    assessment.require_read(command.overrides)
    if (given.model is None) == (given.endpoint is None):
        raise ConfigError("evaluate: wanted either --model MODEL or --endpoint URL. --help shows what they may be.")
    if not command.name:
        command = cli.parse(sys.argv, _flags(), config_required=False, default=_run_config(given))
    out = None if given.out is None else open_records(Path(given.out))
    if given.json not in (None, "-"):
        cli.check_writable(Path(given.json), "--json")
    evaluated = _evaluate_model if given.endpoint is None else _evaluate_endpoint
    source, graded, asked = evaluated(command)
    result = _result(source, command, asked, graded)
    if out is not None:
        write_records(out, result, assessment.records(graded, asked.category))
    if given.json == "-":
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        score_table.show(result)
        if given.json is not None:
            write_json(Path(given.json), result)
    return 0


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    texts = {"model": None, "split": "test", "category": "", "out": None, "json": None}
    texts |= dict.fromkeys(("endpoint", "endpoint_model", "endpoint_api", "endpoint_key_env"))
    integers = {"max_problems": None, "samples": None, "seed": None, "endpoint_concurrency": 16, "endpoint_retries": 5}
    for name, default in texts.items():
        flags.DEFINE_string(name, default, HELP, flag_values=values)
    for name, default in integers.items():
        flags.DEFINE_integer(name, default, HELP, flag_values=values)
    flags.DEFINE_list("k", None, HELP, flag_values=values)
    flags.DEFINE_float("temperature", None, HELP, flag_values=values)
    flags.DEFINE_float("endpoint_timeout", 600.0, HELP, flag_values=values)
    return values


def _run_config(given: flags.FlagValues) -> RunConfig:
    """The configuration that a run folder brings."""
    path = None if given.model is None else located(given.model) / "config.json"
    values = read_json(path) if path is not None and path.is_file() else {}
    if "recipe" not in values:
        what = given.endpoint or given.model
        raise ConfigError(f"--config: got none, wanted a configuration: {what} is no run folder, which has its own.")
    return from_nested(RunConfig, values)


def _asked(command: cli.CommandLine) -> Asked:
    # What comes before the training is none of an evaluation's business, nor whether its problems have worked examples.
    given, config = command.flags, dataclasses.replace(command.config, cold_start=ColdStartConfig())
    config.validate()
    samples = config.evaluation.test_samples_per_problem if given.samples is None else given.samples
    sampling = sampling_params(config.rollout, samples)
    if given.temperature is not None:
        sampling = dataclasses.replace(sampling, temperature=given.temperature)
    seed = config.seed if given.seed is None else given.seed
    ks = _numbers(given.k) if given.k is not None else tuple(sorted({1, samples}))
    greedy = sampling.temperature == 0
    unread = "since --temperature 0 takes the likeliest token every time"
    faults = [
        ("split", given.split, given.split not in (*SPLITS, "all"), f"one of {', '.join(SPLITS)}, all"),
        ("seed", seed, not 0 <= seed < 2**32, "0 or more, and less than 2^32"),
        ("temperature", sampling.temperature, not 0 <= sampling.temperature < 2**31, "0 or more"),
        ("samples", samples, samples < 1, "1 or more"),
        ("max_problems", given.max_problems, given.max_problems is not None and given.max_problems < 1, "1 or more"),
        ("samples", samples, greedy and samples > 1, f"1, {unread}"),
        ("k", given.k, not all(1 <= k <= samples for k in ks), f"numbers from 1 to the {samples} of --samples"),
    ]
    for name, got, wrong, wanted in faults:
        if wrong:
            raise ConfigError(f"--{name}: got {got!r}, wanted {wanted}.")
    if greedy:
        sampling = dataclasses.replace(sampling, top_k=0, top_p=1.0)
    return Asked(config, sampling, seed, given.split, given.category, ks)


def _numbers(texts: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(text) for text in texts}))
    except ValueError as error:
        raise ConfigError(f"--k: got {','.join(texts)!r}, wanted numbers such as 1,4,8.") from error


def _evaluate_model(command: cli.CommandLine) -> tuple[str, list[evaluation.Graded], Asked]:
    """Samples from a model in this process, as a run's own evaluation does."""
    endpoint_flags = [name for name in command.flags if name.startswith("endpoint_") and command.flags[name].present]
    if endpoint_flags:
        raise ConfigError(f"--{endpoint_flags[0]}: wanted none without --endpoint: nothing would read it.")
    asked = _asked(command)
    try:
        mesh = make_mesh(dataclasses.asdict(asked.config.mesh))
        with jax.set_mesh(mesh):
            model = open_saved(located(command.flags.model))
            return model.description, _sampled(model, command, asked), asked
    except (ValueError, OSError) as error:
        if hasattr(error, "exit_status"):
            raise
        # A mesh that the model does not divide over names itself.
        raise ConfigError(str(error) if str(error).startswith("config.mesh") else f"--model: {error}") from error


def _sampled(model: SavedModel, command: cli.CommandLine, asked: Asked) -> list[evaluation.Graded]:
    config = asked.config
    if "data.tokenizer" not in command.overrides:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, tokenizer=model.tokenizer))
    config.validate()
    tokenizer, task = setup.open_problems(config, whole=asked.split == "all")
    if tokenizer.vocab_size > model.spec.vocab_size:
        raise ConfigError(
            f"config.data.tokenizer: got {config.data.tokenizer}, which has {tokenizer.vocab_size} ids, wanted at most "
            f"the {model.spec.vocab_size} of {model.description}. Leave it out to use the model's own."
        )
    setup.check_stops(config, tokenizer, model.spec.vocab_size)
    spec = dataclasses.replace(model.spec, compute_dtype=config.model.compute_dtype)
    engine = JaxEngine(
        spec,
        eos_ids=tokenizer.eos_ids,
        pad_id=tokenizer.pad_id,
        batch_completions=config.rollout.prompts_at_once * config.rollout.completions_per_prompt,
        chunk_tokens=config.rollout.decode_chunk_tokens,
        tokenizer=tokenizer,
    )
    problems = assessment.chosen(task.problems(_split(asked)), command.flags.max_problems)
    assessment.categories(problems, asked.category)
    with open_pool(config.verifier) as pool:
        pool.wait_until_ready()
        engine.sync(placed(model.load(), spec), 0)
        key = evaluation.evaluation_key(asked.seed, _split(asked))
        result = evaluation.evaluate(_Watched(engine), pool, tokenizer, problems, sampling=asked.sampling, key=key)
    return evaluation.graded(result.collected)


def _evaluate_endpoint(command: cli.CommandLine) -> tuple[str, list[evaluation.Graded], Asked]:
    """Has a server sample, and judges what it writes."""
    given, asked = command.flags, _asked(command)
    api = given.endpoint_api or ("chat" if asked.config.data.chat else "completions")
    key = None if given.endpoint_key_env is None else os.environ.get(given.endpoint_key_env)
    faults = [
        ("endpoint_model", given.endpoint_model is None, "the model's name at the server"),
        ("endpoint_api", api not in ("completions", "chat"), "completions or chat"),
        ("endpoint_concurrency", given.endpoint_concurrency < 1, "1 or more"),
        ("endpoint_retries", given.endpoint_retries < 0, "0 or more"),
        ("endpoint_timeout", not 0 < given.endpoint_timeout < 2**31, "a positive number of seconds"),
        ("endpoint_key_env", given.endpoint_key_env is not None and not key, "a variable that is set and not empty"),
    ]
    for name, wrong, wanted in faults:
        if wrong:
            raise ConfigError(f"--{name}: got {given[name].value!r}, wanted {wanted}.")
    data, variables = asked.config.data, json.loads(asked.config.data.chat_variables) if api == "chat" else {}
    server = EndpointConfig(
        given.endpoint,
        given.endpoint_model,
        api,
        given.endpoint_concurrency,
        given.endpoint_timeout,
        given.endpoint_retries,
        key,
        variables,
    )
    problems = assessment.chosen(
        assessment.plain_task(asked.config, api, whole=asked.split == "all").problems(_split(asked)),
        command.flags.max_problems,
    )
    assessment.categories(problems, asked.category)
    prompts = [assessment.endpoint_prompt(problem, data, api) for problem in problems]
    with open_pool(asked.config.verifier) as pool:
        pool.wait_until_ready()
        finished = tracked(Endpoint(server, asked.seed).generate(prompts, asked.sampling), len(problems))
        return f"{given.endpoint_model} at {given.endpoint}", evaluation.grade(finished, pool, problems), asked


def _split(asked: Asked) -> Split:
    return cast("Split", "test" if asked.split == "all" else asked.split)


def _result(source: str, command: cli.CommandLine, asked: Asked, rows: Sequence[evaluation.Graded]) -> dict[str, Any]:
    return {
        "model": source,
        "configuration": command.name or "the run's own",
        "overrides": command.overrides,
        "split": asked.split,
        "seed": asked.seed,
        "sampling": dataclasses.asdict(asked.sampling),
        **assessment.results(rows, asked.ks, asked.seed, asked.category),
        "version": grpo_jax.__version__,
    }


if __name__ == "__main__":
    cli.run(main)
