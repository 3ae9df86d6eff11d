"""Converts models between published folders, GGUF files and what training saves.

python -m grpo_jax.convert --source PATH --to FOLDER [--form huggingface|checkpoint|adapter] [--dtype float32|bfloat16]

  --source PATH         one of: a folder with config.json and safetensors files; a .gguf file, which is dequantized; a
                        run folder, for the policy of its newest checkpoint; a folder that --form checkpoint wrote
  --to FOLDER           a new folder; it appears only when it is whole
  --form huggingface    (default) config.json, safetensors files and the tokenizer's files, as transformers reads them
  --form checkpoint     the same, with float32 parameters in checkpoints/params in the place of the safetensors files:
                        restored in parts onto any mesh
  --form adapter        of a run with model.lora: its adapters alone, as the PEFT library and vLLM read them, with the
                        frozen model in the folder base where that is no published one; in the other forms adapters
                        are merged into the model
  --dtype               of safetensors files (default: float32, which is what is trained)

Works on the CPU alone, whatever accelerators there are. Exit status: 0 done, 2 bad command line or model, 3 no usable
checkpoint, 5 the run is still going on, 6 the checkpoint is not that of the configuration, 7 a file cannot be written.
"""

import contextlib
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError
from grpo_jax.data.installed import located
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.io import storage
from grpo_jax.io.checkpoint import Checkpoints
from grpo_jax.models.adapters import ADAPTERS, merged, without_adapters
from grpo_jax.models.huggingface import leaf_sources, published_tensors
from grpo_jax.models.huggingface.peft import ADAPTER_CONFIG, ADAPTER_TENSORS, peft_config, peft_tensors
from grpo_jax.models.safetensors import CONFIG, write_folder, write_tensors
from grpo_jax.parallel.mesh import AXES, found_devices, make_mesh
from grpo_jax.training.saved import CONVERTED, SavedModel, open_saved

FORMS = ("huggingface", "checkpoint", "adapter")
DTYPES = ("float32", "bfloat16")

BASE = "base"
"""Folder inside that of adapters, for the model that they stand beside."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
"""What else a published folder may hold; copied as it is."""


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    values = flags.FlagValues()
    flags.DEFINE_string("source", None, "What to convert.", flag_values=values)
    flags.DEFINE_string("to", None, "New folder.", flag_values=values)
    flags.DEFINE_string("form", "huggingface", "huggingface, checkpoint or adapter.", flag_values=values)
    flags.DEFINE_string("dtype", "float32", "float32 or bfloat16.", flag_values=values)
    command = cli.parse(sys.argv, values, config_required=False)
    if command.name or command.overrides:
        raise ConfigError("--config: got a configuration, wanted none: a conversion reads the source's own.")
    given = command.flags
    if given.source is None or given.to is None:
        raise ConfigError("convert: wanted both --source PATH and --to FOLDER. --help shows what they may be.")
    for flag, choices in (("form", FORMS), ("dtype", DTYPES)):
        if given[flag].value not in choices:
            raise ConfigError(f"--{flag}: got {given[flag].value!r}, wanted one of {', '.join(choices)}.")
    if given.form != "huggingface" and given.dtype != "float32":
        raise ConfigError("--dtype: got 'bfloat16', wanted float32: the other forms hold what is trained.")
    jax.config.update("jax_platforms", "cpu")
    try:
        print(convert(located(given.source), Path(given.to), form=given.form, dtype=given.dtype))
    except (ValueError, OSError) as error:
        if hasattr(error, "exit_status"):
            raise
        raise ConfigError(f"--source: {error}" if isinstance(error, ValueError) else str(error)) from error
    return 0


def convert(source: Path, target: Path, *, form: Any = "huggingface", dtype: Any = "float32") -> str:
    """Converts one model.

    Args:
        source: What to convert.
        target: A folder that does not exist yet, or is empty.
        form: One of ``FORMS``.
        dtype: One of ``DTYPES``, for safetensors files.

    Returns:
        A sentence for people on what was written.

    Raises:
        ValueError: for a source that is no model, or that cannot be converted.
        FileExistsError: where the target holds something already.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"--to: {target} exists already, wanted a new folder.")
    mesh = make_mesh(dict.fromkeys(AXES, 1), found_devices()[:1])
    new_parents = [parent for parent in target.parents if not parent.exists()]
    storage.make_folder(target.parent, "--to")
    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        with jax.set_mesh(mesh):
            model = open_saved(source)
            with storage.writing(target):
                parameters = _write(model, unfinished, form, dtype)
        _write_tokenizer(model, source, unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished)
        for parent in new_parents:
            with contextlib.suppress(OSError):  # Another process may have put something there meanwhile.
                parent.rmdir()
        raise
    return f"{target}: {parameters:,} parameters from {model.description}"


def _write(model: SavedModel, folder: Path, form: Any, dtype: Any) -> int:
    """Writes everything but the tokenizer; returns the number of parameters."""
    if form == "adapter":
        return _write_adapter(model, folder)
    if form == "checkpoint":
        with contextlib.closing(Checkpoints(folder / CONVERTED, 1)) as checkpoints:
            checkpoints.save(0, merged(model.load(), model.spec), {})
    else:
        write_folder(folder, model.published(), dtype)
    _write_config(folder, model.config, dtype)
    return sum(math.prod(source.shape) for source in leaf_sources(model.spec))


def _write_adapter(model: SavedModel, folder: Path) -> int:
    if model.params is None or ADAPTERS not in model.params:
        raise ValueError(
            f"--form: got 'adapter', but {model.description} has no adapters, wanted a run with model.lora.rank "
            "above 0. Leave --form out to convert the whole model."
        )
    tensors = peft_tensors(model.params, model.spec)
    write_tensors(folder / ADAPTER_TENSORS, tensors)
    if not model.base:
        # Nobody else has the model that they stand beside.
        base = folder / BASE
        base.mkdir()
        write_folder(base, published_tensors(without_adapters(model.params), model.spec), "float32")
        _write_config(base, model.config, "float32")
    _write_json(folder / ADAPTER_CONFIG, peft_config(model.spec, model.base or BASE))
    return sum(array.size for array in tensors.values())


def _write_config(folder: Path, config: dict[str, Any], dtype: str) -> None:
    # Files of both generations name the dtype; only one name is kept.
    others = {name: value for name, value in config.items() if name != "dtype"}
    _write_json(folder / CONFIG, others | {"torch_dtype": dtype})


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _write_tokenizer(model: SavedModel, source: Path, target: Path) -> None:
    if model.tokenizer != str(source) or source.is_file():
        write_files(published_files(model.tokenizer), target)
        return
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    cli.run(main)
