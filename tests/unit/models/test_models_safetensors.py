import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from grpo_jax.models.safetensors import INDEX, SINGLE, SafetensorsFolder, write_folder

TENSORS = {f"t{n}": np.random.default_rng(n).normal(size=(4, 3 + n)).astype(np.float32) for n in range(4)} | {
    "vector": np.float32([1.0, -0.0, np.inf]),
    "odd bits": np.uint32([0x7FC12345, 1, 0x80000001]).view(np.float32),
}


def whole(folder):
    return {name: folder.read(name, tuple(slice(0, n) for n in shape)) for name, shape in folder.shapes.items()}


def bits(array):
    return np.asarray(array).view({2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


@pytest.mark.parametrize("shard_bytes", [10**9, 100, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_come_back_bit_for_bit(tmp_path, dtype, shard_bytes):
    write_folder(tmp_path, TENSORS.items(), dtype, shard_bytes)
    read = whole(SafetensorsFolder(tmp_path))
    assert set(read) == set(TENSORS)
    for name, array in TENSORS.items():
        meant = array if dtype == "float32" else array.astype(jnp.bfloat16)
        assert read[name].dtype == meant.dtype
        np.testing.assert_array_equal(bits(read[name]), bits(meant), name)
    files = sorted(path.name for path in tmp_path.iterdir())
    count = {10**9: 1, 1: len(TENSORS)}.get(shard_bytes, len(files) - 1)
    if count == 1:
        assert files == [SINGLE]
    else:
        assert files == [*(f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)), INDEX]
        total = json.loads((tmp_path / INDEX).read_text())["metadata"]["total_size"]
        assert total == sum(array.nbytes for array in read.values())
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in tmp_path.glob("*.safetensors"))


def test_a_window_is_that_part(tmp_path):
    write_folder(tmp_path, TENSORS.items(), "float32")
    folder = SafetensorsFolder(tmp_path)
    np.testing.assert_array_equal(folder.read("t3", (slice(1, 3), slice(2, 5))), TENSORS["t3"][1:3, 2:5])


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"got neither model\.safetensors nor model\.safetensors\.index\.json, wanted"):
        SafetensorsFolder(tmp_path)


def test_damaged_files_are_named(tmp_path):
    write_folder(tmp_path, TENSORS.items(), "float32")
    content = (tmp_path / SINGLE).read_bytes()
    for cut in (content[:4], content[:50], content[:-1]):
        (tmp_path / SINGLE).write_bytes(cut)
        with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors: .*Fetch it again"):
            SafetensorsFolder(tmp_path)


def test_integers_are_no_parameters(tmp_path):
    save_file({"packed": np.zeros((2, 2), np.int8), "plain": np.zeros(2, np.float16)}, tmp_path / SINGLE)
    with pytest.raises(
        ValueError, match=r"no plain floating point numbers: packed \(I8\)\. Wanted F64, F32, F16, BF16"
    ):
        SafetensorsFolder(tmp_path)


def sharded(folder):
    write_folder(folder, TENSORS.items(), "float32", 100)
    return json.loads((folder / INDEX).read_text())


def test_an_index_that_does_not_fit_its_files_is_refused(tmp_path):
    index = sharded(tmp_path)
    names = index["weight_map"]

    def changed(weight_map):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        return SafetensorsFolder(tmp_path)

    with pytest.raises(ValueError, match=r"index\.json is no index of safetensors files: .* Fetch it again"):
        changed(3)
    with pytest.raises(
        ValueError, match=r"does not hold 1 tensors, by model\.safetensors\.index\.json: more in model-"
    ):
        changed(names | {"more": names["t0"]})
    with pytest.raises(ValueError, match=r"holds unlisted 1 tensors, .*: vector in model-"):
        changed({name: file for name, file in names.items() if name != "vector"})
    with pytest.raises(ValueError, match=r"got the file '\.\./x', wanted files of the same folder"):
        changed(names | {"more": "../x"})
    (tmp_path / INDEX).write_text("{}")
    with pytest.raises(ValueError, match=r"is no index of safetensors files: KeyError"):
        SafetensorsFolder(tmp_path)


def test_a_missing_file_of_the_index_is_named(tmp_path):
    file = sharded(tmp_path)["weight_map"]["vector"]
    (tmp_path / file).unlink()
    with pytest.raises(ValueError, match=rf"{file}: no such file, but model\.safetensors\.index\.json lists it"):
        SafetensorsFolder(tmp_path)
