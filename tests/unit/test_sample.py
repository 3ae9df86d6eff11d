"""What the command prints is what the engine samples from the model that was named."""

import io
import json
import subprocess
import sys

import jax
import pytest

from grpo_jax import convert, sample
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.run_folder import RunFolder, RunFolderInUse
from grpo_jax.parallel.mesh import AXES, make_mesh
from grpo_jax.rollout.engine import SamplingParams
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training.collect import decoded
from grpo_jax.training.saved import open_saved
from tests.unit.models import test_models_gguf
from tests.unit.test_convert import MODEL, VALUES, load, run_folder

PROMPT = "12+34="
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_folder(folder, ["grpo"])
    return folder


@pytest.fixture(scope="module")
def published(run):
    convert.convert(run, run.parent / "published")
    return run.parent / "published"


@pytest.fixture(scope="module")
def chatty(run):
    """A model of bytes with a chat template."""
    telling = MODEL | {"init_std": 0.5, "embedding_init_std": 1.0}
    data = VALUES["data"] | {"tokenizer": "bytes", "max_prompt_tokens": 96}
    run_folder(run.parent / "bytes", ["cold_start"], model=telling, data=data)
    folder = run.parent / "chatty"
    convert.convert(run.parent / "bytes", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    def run_it(model, *arguments, prompt=PROMPT):
        monkeypatch.setattr(sys, "argv", ["sample", f"--model={model}", f"--prompt={prompt}", *arguments])
        assert sample.main() == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run_it


def sampled(published, sampling, seed=0):
    """Texts by the engine alone."""
    spec, params = load(published)
    tokenizer = build_tokenizer(str(published))
    with jax.set_mesh(make_mesh(dict.fromkeys(AXES, 1), jax.devices()[:1])):
        engine = JaxEngine(
            spec,
            eos_ids=tokenizer.eos_ids,
            pad_id=tokenizer.pad_id,
            batch_completions=sampling.completions_per_prompt,
            tokenizer=tokenizer,
        )
        engine.sync(params, 0)
        prompt = tokenizer.encode_prompt(PROMPT)
        [group] = engine.generate([prompt], sampling=sampling, key=jax.random.key(seed))
        return [completion.text for completion in decoded(group, tokenizer, sampling.stop)]


def test_one_completion_of_a_run_and_of_its_published_form(command, run, published):
    for model, seed in ((run, 0), (published, 1)):
        text, remarks = command(model, "--max_new_tokens=20", f"--seed={seed}")
        assert text == f"{sampled(published, SamplingParams(1, 20), seed)[0]}\n"
        assert remarks.startswith(f"step 2 of grpo in {run}" if model == run else str(published))


def test_several_completions_with_a_stop(command, published):
    drawn = ["--max_new_tokens=8", "--num=3", "--top_k=5", "--temperature=1.5", "--top_p=0.9", "--stop=1", "--stop=+"]
    text, remarks = command(published, *drawn)
    wanted = sampled(published, SamplingParams(3, 8, 1.5, 5, 0.9, ("1", "+")))
    assert text == "".join(f"--- {number} of 3\n{one}\n" for number, one in enumerate(wanted, start=1))
    assert len(set(wanted)) > 1
    assert "of 3 cut off" in remarks


def test_greedy_does_not_depend_on_the_seed(command, published):
    texts = {command(published, "--temperature=0", "--max_new_tokens=20", f"--seed={seed}")[0] for seed in (0, 1)}
    assert texts == {f"{sampled(published, SamplingParams(1, 20, 0.0))[0]}\n"}


def test_a_stop_ends_what_is_shown(command, published):
    [whole] = sampled(published, SamplingParams(1, 20))
    stop = whole[3:5]
    text, remarks = command(published, "--max_new_tokens=20", f"--stop={stop}")
    assert text == whole[: whole.index(stop)] + "\n"
    assert "0 of 1 cut off" in remarks


def test_a_chat_is_the_template_around_the_prompt(command, chatty):
    chat, _ = command(chatty, "--chat", "--system=Be brief.", "--max_new_tokens=12", prompt="Hi")
    plain, _ = command(chatty, "--max_new_tokens=12", prompt="<bos><system>Be brief.\n<user>Hi\n<assistant>")
    assert chat == plain
    assert chat != command(chatty, "--chat", "--max_new_tokens=12", prompt="Hi")[0], "the system's message is read"


def test_a_gguf_file_and_a_prompt_from_standard_input(command, monkeypatch, tmp_path):
    test_models_gguf.write(tmp_path, tokenizer=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab12"))
    text, _ = command(tmp_path / "model.gguf", "--max_new_tokens=6", prompt="-")
    assert text == command(tmp_path / "model.gguf", "--max_new_tokens=6", prompt="ab12")[0]


def test_a_run_that_goes_on_is_left_alone(command, run):
    config = json.loads((run / "config.json").read_text())
    with RunFolder.open(run, config, overrides={}), pytest.raises(RunFolderInUse, match="is in use by"):
        command(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num=0"], r"--num: got 0, wanted 1 to 1024"),
        (["--prompt=\udcff"], r"--prompt: got bytes that are no UTF-8"),
        (["--seed=-1"], r"--seed: got -1, wanted 0 or more"),
        (["--temperature=-1"], r"--temperature: got -1\.0, wanted a positive number"),
        (["--temperature=0", "--top_k=5"], r"--top_k: got 5, wanted 0, since --temperature 0 takes the likeliest"),
        (["--temperature=0", "--top_p=0.5"], r"--top_p: got 0\.5, wanted 1, since"),
        (["--temperature=0", "--num=2"], r"--num: got 2, wanted 1, since"),
        (["--top_p=1.5"], r"--top_p: got 1\.5, wanted a share"),
        (["--max_new_tokens=0"], r"--max_new_tokens: got 0, wanted 1 or more"),
        (["--max_new_tokens=90"], r"--max_new_tokens: got 90, but of the model's context of 96 tokens the prompt's 7"),
        (["--system=x"], r"--system: got 'x', wanted none without --chat"),
        (["--chat"], r"--chat: step 2 of grpo in .* has the tokenizer 'characters', which has no template"),
        (["--stop=1", "--stop=12"], r"--stop: got \('1', '12'\), wanted no text that holds another one, as '12'"),
        (["--stop="], r"--stop: got \('',\), wanted texts of one character or more"),
        (["--stop=x"], r"--stop: 'x' would never be found: the characters tokenizer has no token for"),
        (["--compute_dtype=int8"], r"--compute_dtype: got 'int8', wanted one of float32, bfloat16"),
        (["--config.steps=3"], r"--config: got a configuration, wanted none"),
        (["--tempreature=1"], r"command line: Unknown command line flag 'tempreature'"),
        (["--prompt=x"], r"--prompt: got 'x', which .* cannot write: the characters tokenizer has no token"),
        (["--model=absent"], r"--model: absent is neither a \.gguf file nor a folder"),
    ],
)
def test_command_lines_that_cannot_work_are_refused(command, run, arguments, message):
    with pytest.raises(ValueError, match=message):
        command(run, *arguments)


def test_model_and_prompt_are_needed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sample", "--model=x"])
    with pytest.raises(ValueError, match=r"wanted --model MODEL and --prompt TEXT, or --chat for a conversation"):
        sample.main()


@pytest.fixture
def conversation(monkeypatch, capsys):
    def run_it(model, lines, *arguments):
        monkeypatch.setattr(sys, "argv", ["sample", f"--model={model}", "--chat", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert sample.main() == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run_it


def test_a_conversation_is_remembered_until_it_is_cleared(conversation, command, chatty):
    greedy = ["--temperature=0", "--max_new_tokens=8", "--system=S"]
    text, remarks = conversation(chatty, "Hi\n\n  Ho \n/clear\nHi\n/exit\nnever read\n", *greedy)
    alone = ["--temperature=0", "--max_new_tokens=8"]
    first = command(chatty, *alone, prompt="<bos><system>S\n<user>Hi\n<assistant>")[0]
    assert text.startswith(first)
    said = first.removesuffix("\n")
    second = command(chatty, *alone, prompt=f"<bos><system>S\n<user>Hi\n<assistant>{said}\n<user>Ho\n<assistant>")[0]
    assert text == first + second + first
    assert remarks.count("\n") == 1, "only what was loaded is remarked on"


def test_a_conversation_that_outgrows_the_context_can_be_cleared(conversation, chatty):
    text, remarks = conversation(chatty, f"Hi\n{'x' * 120}\n/clear\nHi\n", "--temperature=0", "--max_new_tokens=8")
    assert "of the model's context of " in remarks
    assert "/clear forgets what was said" in remarks
    answers = len(text) // 2
    assert text[:answers] == text[answers:]


def test_each_turn_has_noise_of_its_own_and_a_conversation_goes_one_way(conversation, chatty):
    text, _ = conversation(chatty, "Hi\n/clear\nHi\n", "--max_new_tokens=12")
    assert len(text) < 2 or text[: len(text) // 2] != text[len(text) // 2 :]
    with pytest.raises(ValueError, match=r"--num: got 2, wanted 1 without --prompt"):
        conversation(chatty, "Hi\n", "--num=2")


def test_pieces_are_shown_as_they_come_and_never_taken_back(chatty):
    """Bytes are cut anywhere, also inside a character, and a stop's beginning is held back."""
    with jax.set_mesh(make_mesh(dict.fromkeys(AXES, 1), jax.devices()[:1])):
        model = open_saved(chatty)
        tokenizer = build_tokenizer(model.tokenizer)
        sampler = sample.Sampler(model, tokenizer, "float32", 1)
        for seed, stops in ((0, ()), (1, ()), (2, ("e", "ab"))):
            pieces = []
            sampling = SamplingParams(1, 40, 1.0, 0, 1.0, stops)
            prompt = tokenizer.encode_prompt("é")
            completion = sampler.stream(prompt, sampling, jax.random.key(seed), pieces.append)
            [whole] = sampler.complete(prompt, sampling, jax.random.key(seed))
            assert "".join(pieces) == completion.text == whole.text
            assert len(pieces) > 1


def test_the_command(published):
    arguments = [sys.executable, "-m", "grpo_jax.sample", "--help"]
    shown = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert "--max_new_tokens N" in shown
    arguments = [*arguments[:-1], "--model", published, "--prompt", PROMPT, "--max_new_tokens", "20"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout == f"{sampled(published, SamplingParams(1, 20))[0]}\n"
    failed = subprocess.run([*arguments, "--num=0"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: --num: got 0")
