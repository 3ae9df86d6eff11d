import dataclasses

import jax
import numpy as np
import pytest

from grpo_jax.models.architecture import published_config
from grpo_jax.models.huggingface import leaf_sources, published_tensors, spec_from_huggingface
from grpo_jax.models.parameters import init_params
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec, RopeScaling
from grpo_jax.models.weights import load_params
from grpo_jax.parallel.mesh import AXES, make_mesh
from grpo_jax.training.recipe import abstract_params

DENSE = ModelSpec(64, 3, 32, 8, 4, 8, 48, qkv_bias=True)
SPECS = {
    "dense": DENSE,
    "tied": dataclasses.replace(DENSE, tie_embeddings=True, qkv_bias=False, qk_norm=True),
    "experts": dataclasses.replace(DENSE, qkv_bias=False, qk_norm=True, experts=Experts(4, 2, 24)),
    "latent": ModelSpec(
        64, 3, 32, 4, 4, 18, 48, latent=LatentAttention(16, 12, 8, 14), experts=Experts(4, 2, 24, first_dense_layers=1)
    ),
}


class InMemory:
    """Published tensors that record which parts were read."""

    def __init__(self, arrays):
        self.arrays, self.part_sizes = arrays, {}
        self.shapes = {name: array.shape for name, array in arrays.items()}

    def read(self, name, window):
        part = self.arrays[name][window]
        self.part_sizes[name, str(window)] = part.size
        return part


def random_params(spec):
    """Every element differs, so that no two can be mistaken for each other."""
    shapes = jax.eval_shape(lambda: init_params(jax.random.key(0), spec))
    leaves, structure = jax.tree.flatten(shapes)
    generator = np.random.default_rng(0)
    return jax.tree.unflatten(structure, [generator.normal(size=leaf.shape).astype(np.float32) for leaf in leaves])


MESHES = [
    {},
    {"data": 2},
    {"fsdp": 2, "tensor": 4},
    {"data": 2, "fsdp": 2, "tensor": 2},
]


@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_every_device_gets_its_part(name, sizes):
    spec, params = SPECS[name], random_params(SPECS[name])
    tensors = InMemory(dict(published_tensors(params, spec)))
    mesh = make_mesh(dict.fromkeys(AXES, 1) | sizes, jax.devices()[: int(np.prod(list(sizes.values())))])
    with jax.set_mesh(mesh):
        abstract = abstract_params(spec)
        loaded = load_params(tensors, spec, abstract)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    shardings = [jax.tree.map(lambda leaf: leaf.sharding, tree) for tree in (loaded, abstract)]
    assert shardings[0] == shardings[1]
    elements = sum(array.size for array in tensors.arrays.values())
    assert sum(tensors.part_sizes.values()) == elements, "the parts that are read do not overlap"


def test_without_a_mesh_arrays_go_to_the_default_device():
    params = random_params(DENSE)
    abstract = jax.eval_shape(lambda: init_params(jax.random.key(0), DENSE))
    loaded = load_params(InMemory(dict(published_tensors(params, DENSE))), DENSE, abstract)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    assert loaded["embedding"].devices() == {jax.devices()[0]}


def load(spec, change):
    arrays = dict(published_tensors(random_params(spec), spec))
    change(arrays)
    return load_params(InMemory(arrays), spec, jax.eval_shape(lambda: init_params(jax.random.key(0), spec)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda arrays: arrays.pop("model.layers.2.mlp.up_proj.weight"),
            r"the model lacks 1 tensors: model\.layers\.2\.mlp\.up_proj\.weight\. Does config\.json belong",
        ),
        (
            lambda arrays: arrays.update({"model.norm.weight": np.zeros(31, np.float32)}),
            r"has wrong shapes of 1 tensors: model\.norm\.weight \(got \[31\], wanted \[32\]\)",
        ),
        (
            lambda arrays: arrays.update({f"model.layers.{n}.mlp.gate_proj.bias": np.zeros(3) for n in range(7)}),
            r"has unread 7 tensors: model\.layers\.0\.mlp\.gate_proj\.bias, .* and 2 more\. A model with them computes",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        load(DENSE, change)


def test_a_tied_output_may_be_written_out_but_must_be_the_embedding():
    spec, output, embedding = SPECS["tied"], "lm_head.weight", "model.embed_tokens.weight"
    load(spec, lambda arrays: arrays.update({output: arrays[embedding].copy()}))
    with pytest.raises(
        ValueError, match=r"lm_head\.weight: got values other than those of model\.embed_tokens\.weight"
    ):
        load(spec, lambda arrays: arrays.update({output: arrays[embedding] + 1}))


def test_tables_of_old_files_are_left_out():
    load(DENSE, lambda arrays: arrays.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4)}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": False, "qk_norm": True, "head_dim": 12},
        {"qkv_bias": False, "windows": (5, 5, 5)},
        {"qkv_bias": False, "rope_scaling": RopeScaling("linear", 2.0)},
        {"qkv_bias": False, "rope_scaling": RopeScaling("llama3", 8.0, 1.0, 4.0, 8192), "tie_embeddings": True},
        {"qkv_bias": False, "qk_norm": True, "rope_scaling": RopeScaling("yarn", 4.0, amplitude=1.1)},
        {"qkv_bias": False, "qk_norm": True, "experts": Experts(4, 2, 24, normalize=False)},
        {"compute_dtype": "bfloat16", "remat": "full", "embedding_init_std": 0.5},
    ],
)
def test_a_spec_is_found_again_in_its_published_description(changes):
    spec = dataclasses.replace(DENSE, **changes)
    config = published_config(spec, 512)
    read = spec_from_huggingface(config)
    kept = ("compute_dtype", "remat", "embedding_init_std")
    assert dataclasses.replace(read, **{name: getattr(spec, name) for name in kept}) == spec
    assert config["max_position_embeddings"] == 512
    names = {name for source in leaf_sources(spec) for name in source.names}
    assert names == {name for source in leaf_sources(read) for name in source.names}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qk_norm": True}, r"no family of published models like 'qwen3' has this qkv_bias\."),
        ({"post_norms": True, "norm_offset": 1.0}, r"like 'qwen2' has this post_norms, norm_offset\."),
    ],
)
def test_a_spec_that_nobody_publishes_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        published_config(dataclasses.replace(DENSE, **changes), 512)
