"""The command line: files, overrides and the errors of both."""

import errno
import os
from pathlib import Path

import pytest
from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError

QUICKSTART = str(Path(__file__).resolve().parents[3] / "configs" / "quickstart.py")


def parse(*arguments: str) -> cli.CommandLine:
    flag_values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "", flag_values=flag_values)
    return cli.parse(["train", *arguments], flag_values)


def write(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text(text)
    return str(file)


def test_overrides_are_typed_by_what_they_override() -> None:
    command = parse(
        f"--config={QUICKSTART}",
        "--config.seed=3",
        "--config.optimizer.learning_rate=1",
        "--config.verifier.rewards=('numeric', 'format')",
        "--config.verifier.weights=(1.0, 0.5)",
        "--config.model.qk_norm=true",
        "--config.data.path=problems.jsonl",
        "--workdir=here",
    )
    config = command.config
    assert (config.seed, config.optimizer.learning_rate, config.model.qk_norm) == (3, 1.0, True)
    assert config.verifier.rewards == ("numeric", "format")
    assert config.data.path == "problems.jsonl"
    assert command.name == "quickstart"
    assert command.flags.workdir == "here"
    assert command.overrides["seed"] == "3"
    assert len(command.overrides) == 6


def test_overrides_are_on_record_however_they_were_written() -> None:
    command = parse(
        f"--config={QUICKSTART}",
        "--config.steps",
        "5",
        "--config.model.qk_norm",
        "--noconfig.model.tie_embeddings",
        "--config.data.path=a=b",
    )
    assert (command.config.steps, command.config.model.qk_norm, command.config.model.tie_embeddings) == (5, True, False)
    assert command.overrides == {
        "steps": "5",
        "model.qk_norm": "True",
        "model.tie_embeddings": "False",
        "data.path": "a=b",
    }


def test_a_key_that_is_switched_off_has_to_exist() -> None:
    with pytest.raises(ConfigError, match=r"config\.chat"):
        parse(f"--config={QUICKSTART}", "--noconfig.chat")


def test_a_partial_config_gets_the_defaults(tmp_path: Path) -> None:
    text = (
        "from ml_collections import ConfigDict\ndef get_config(arg='5'):\n    return ConfigDict({'steps': int(arg)})\n"
    )
    path = write(tmp_path, text)
    assert parse("--config", path).config.steps == 5
    assert parse(f"--config={path}:7", "--config.rollout.top_k=4").config.steps == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"--config: got none"),
        (["--config=absent.py"], r"--config: got absent\.py, wanted an existing file"),
        ([f"--config={QUICKSTART}", "--config.modle.d_ff=3"], r"config\.modle: no such key\. Did you mean 'model'\?"),
        ([f"--config={QUICKSTART}", "--config.steps=ten"], r"command line: .*steps"),
        ([f"--config={QUICKSTART}", "--wrokdir=x"], r"command line: .*wrokdir"),
        ([f"--config={QUICKSTART}", "stray"], r"command line: got 'stray'"),
        (["configs/quickstart.py"], r"--config: got none, .* Did you mean --config configs/quickstart\.py\?"),
        ([f"--config={QUICKSTART.replace('quickstart.py', 'smollm2_135m.py')}:big"], r"takes no argument"),
    ],
)
def test_wrong_command_lines_are_explained(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config():\n    return {}\n", r"gave a dict, wanted a ConfigDict"),
        ("x = 1\n", r"has no function get_config\(\), wanted one that returns a ConfigDict"),
        ("def get_config(:\n", r"does not give a configuration: SyntaxError"),
    ],
)
def test_broken_config_files_are_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse("--config", write(tmp_path, text))


def test_known_exceptions_end_with_their_status(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise ConfigError("config.steps: no")

    with pytest.raises(SystemExit) as ended:
        cli.run(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: config.steps: no\n"


def test_unknown_exceptions_are_our_fault(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise RuntimeError("a bug")

    with pytest.raises(SystemExit) as ended:
        cli.run(main)
    assert ended.value.code == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [MemoryError("big"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocator")])
def test_a_lack_of_memory_says_what_makes_a_run_smaller(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise error

    with pytest.raises(SystemExit) as ended:
        cli.run(main)
    assert ended.value.code == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: out of memory: ")
    assert "grpo_jax.memory" in shown
    assert "Traceback" not in shown


def test_a_file_that_the_system_refuses_to_write_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.json")

    with pytest.raises(SystemExit) as ended:
        cli.run(main)
    assert ended.value.code == 7
    wanted = "error: out.json cannot be written: No space left on device. Free space there, then give the same command "
    assert capsys.readouterr().err == f"{wanted}again.\n"
