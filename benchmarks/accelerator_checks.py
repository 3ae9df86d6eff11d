"""Whether a device computes what it should: attention against float32, and log-probabilities against the processor."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.models import attention, fused_attention
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh
from grpo_jax.training import completions
from grpo_jax.training.recipe import init_sharded

FLOAT32_TOLERANCE = {"attention": 1e-4, "logprobs": 1e-3}
"""Greatest difference of float32 at the highest precision: of attention relative to its largest value, and in nats."""

BFLOAT16_FACTOR = 2.0
"""A kernel in bfloat16 may be so many times as far from float32 as the blockwise form in bfloat16 is."""

PRECISION = {"float32": "highest", "bfloat16": "default"}
"""Of matrix products, by dtype: a TPU's kernels refuse bfloat16 at any other."""

DTYPES = tuple(PRECISION)


class Shape(NamedTuple):
    """Rows and heads of one comparison, named as in ``models.attention``, and whether rows have padding."""

    N: int
    S: int
    K: int
    J: int
    C: int
    window: int
    padded: bool


SHAPES = {
    "causal, 6 queries per key, head 128": Shape(2, 512, 2, 6, 128, 0, False),
    "padded, 3 queries per key, head 64": Shape(3, 384, 3, 3, 64, 0, True),
    "window of 100, padded, 4 queries per key, head 128": Shape(2, 512, 2, 4, 128, 100, True),
}
"""Those of Qwen2.5-1.5B and SmolLM2-135M, and a window as Mistral has one."""

SPEC = ModelSpec(
    vocab_size=1024, num_layers=4, d_model=256, num_heads=4, num_kv_heads=2, head_dim=64, d_ff=512, qkv_bias=True
)
"""A policy whose weights are random."""


def outcomes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Compares everything.

    Yields:
        What was compared, with its greatest differences and whether they are as small as they should be.
    """
    for name, shape in SHAPES.items():
        for dtype in DTYPES:
            yield f"attention, {name}, {dtype}", attention_outcome(shape, dtype)
    yield from logprob_outcomes()


def attention_outcome(shape: Shape, dtype: str) -> dict[str, Any]:
    """Compares the attention that is chosen for the device, and its gradients, with the blockwise form in float32.

    Args:
        shape: What it is computed for.
        dtype: In which.

    Returns:
        The form that was chosen, differences relative to the largest value, those of the blockwise form in the same
        dtype, and whether they are small.
    """
    inputs = tuple(array.astype(dtype) for array in _inputs(shape))
    segment_NS, device = _segments(shape), jax.devices()[0]
    with _on(device):
        kernel = fused_attention.kernel_for(inputs[0], inputs[2], shape.window, packed=False)
        wide = tuple(array.astype(jnp.float32) for array in inputs)
        wanted = _attended(wide, segment_NS, shape.window, kernels=False)
        chosen, plain = (_attended(inputs, segment_NS, shape.window, kernels=kernels) for kernels in (True, False))
    difference, of_blockwise = relative_difference(chosen, wanted), relative_difference(plain, wanted)
    return {
        "form": kernel.func.__name__ if isinstance(kernel, functools.partial) else "blockwise",
        "difference": difference,
        "of_blockwise": of_blockwise,
        "ok": small(difference, of_blockwise, dtype, FLOAT32_TOLERANCE["attention"]),
    }


def logprob_outcomes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Compares log-probabilities of completions on the device with those on the processor, if there are both."""
    device, processor = jax.devices()[0], jax.devices("cpu")[0]
    wanted = _logprobs("float32", processor)
    for dtype in DTYPES:
        difference = float(np.abs(_logprobs(dtype, device) - wanted).max())
        of_processor = float(np.abs(_logprobs(dtype, processor) - wanted).max())
        yield (
            f"log-probabilities, {dtype}",
            {
                "form": "trainer",
                "difference": difference,
                "of_processor": of_processor,
                "ok": small(difference, of_processor, dtype, FLOAT32_TOLERANCE["logprobs"]),
            },
        )


def small(difference: float, known: float, dtype: str, tolerance: float) -> bool:
    """Whether a difference from float32 is as small as the dtype lets it be.

    Args:
        difference: What was found; one that is not a number is not small.
        known: That of another computation in the same dtype.
        dtype: The dtype.
        tolerance: Greatest difference in float32.

    Returns:
        Whether it is.
    """
    return difference <= (tolerance if dtype == "float32" else max(tolerance, BFLOAT16_FACTOR * known))


def relative_difference(given: Any, wanted: Any) -> float:
    """The greatest difference of any array from the one that is wanted, relative to the latter's largest value."""
    pairs = zip(jax.tree.leaves(given), jax.tree.leaves(wanted), strict=True)
    differences = [np.abs(np.asarray(a, np.float32) - b).max() / np.abs(b).max() for a, b in pairs]
    return float(np.max(differences))


def _on(device: Any) -> Any:
    return jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1), [device]))


def _inputs(shape: Shape) -> tuple[jax.Array, ...]:
    """Queries, keys, values, and the gradient of a loss by the output."""
    N, S, K, J, C = shape[:5]
    random, rows = np.random.default_rng(0), ((N, S, K, J, C), (N, S, K, C), (N, S, K, C), (N, S, K, J, C))
    query, *others = (random.normal(size=sizes).astype(np.float32) for sizes in rows)
    # bfloat16 holds them exactly, so that no comparison is of other numbers.
    return tuple(jnp.asarray(array, jnp.bfloat16).astype(jnp.float32) for array in (query * C**-0.5, *others))


def _segments(shape: Shape) -> np.ndarray:
    """Rows as training has them: padding in front of prompts and behind completions."""
    segment_NS = np.ones((shape.N, shape.S), np.int32)
    for row in range(shape.N if shape.padded else 0):
        segment_NS[row, : 37 * row + 5] = 0
        segment_NS[row, shape.S - 11 * row - 3 :] = 0
    return segment_NS


def _attended(inputs: tuple[jax.Array, ...], segment_NS: np.ndarray, window: int, *, kernels: bool) -> Any:
    """Attention output at tokens, and gradients of queries, keys and values."""
    *arrays, weight = inputs
    counted = (segment_NS > 0)[:, :, None, None, None]
    with jax.default_matmul_precision(PRECISION[inputs[0].dtype.name]):
        attend = differentiated_attention(segment_NS, window, kernels=kernels)
        out, gradients = jax.device_get(attend(arrays, jnp.where(counted, weight.astype(jnp.float32), 0)))
    return np.where(counted, np.asarray(out, np.float32), 0), gradients


def differentiated_attention(segment_NS: np.ndarray, window: int, *, kernels: bool) -> Any:
    """Attention over rows with its derivative, as one program.

    Args:
        segment_NS: See ``attention.row_attention``.
        window: Nearest positions that are seen; 0 for all.
        kernels: The platform's own kernel where there is one.

    Returns:
        ``([query, key, value], weight) -> (output, gradients)`` of the sum of the output times its weight.
    """
    options: dict[str, Any] = {"window": window, "block_tokens": 128, "kernels": kernels, "packed": False}

    def loss(arrays: list[jax.Array], weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        query, key, value = arrays
        out = attention.row_attention(query, key, value, jnp.asarray(segment_NS), **options)
        placed = jax.sharding.reshard(weight, jax.typeof(out).sharding)
        return jnp.sum(out.astype(jnp.float32) * placed), out

    @jax.jit
    def attend(arrays: list[jax.Array], weight: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        (_, out), gradients = jax.value_and_grad(loss, has_aux=True)(arrays, weight)
        return out, gradients

    return attend


def _logprobs(dtype: str, device: Any) -> np.ndarray:
    """Log-probabilities of tokens of the same completions under the same policy."""
    spec = ModelSpec(**{**SPEC.__dict__, "compute_dtype": dtype})
    N, P, T = 4, 64, 192
    random = np.random.default_rng(0)
    with _on(jax.devices("cpu")[0]):
        params = jax.device_get(init_sharded(jax.random.key(0), SPEC))
    rows = completions.Rows(
        prompt_NP=jnp.asarray(random.integers(0, spec.vocab_size, (N, P), np.int32)),
        prompt_length_N=jnp.array([P, 40, 7, 1], jnp.int32),
        token_NT=jnp.asarray(random.integers(0, spec.vocab_size, (N, T), np.int32)),
        length_N=jnp.array([T, 100, T, 3], jnp.int32),
        sampler_logprob_NT=jnp.zeros((N, T), jnp.float32),
        advantage_NT=jnp.zeros((N, T), jnp.float32),
        weight_N=jnp.ones(N, jnp.float32),
        index_N=jnp.arange(N, dtype=jnp.int32),
    )
    counted = np.asarray(rows.mask_NT)
    with _on(device), jax.default_matmul_precision(PRECISION[dtype]):
        # The default device, where arrays are made, may be another one.
        placed = jax.tree.map(mesh.put, jax.device_get((params, rows)))
        score = lambda params, rows: completions.completion_logprobs(params, spec, rows, 1.0)  # noqa: E731
        scored = jax.jit(score)(*placed)
        assert scored.logprob_NT.devices() == {device}, "computed on the device that is asked for"
    return np.where(counted, np.asarray(scored.logprob_NT), 0)
