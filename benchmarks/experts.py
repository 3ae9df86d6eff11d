"""Compares a mixture of experts with dense layers on a CPU, and writes docs/experts.json.

python benchmarks/experts.py [--repeats 15] [--out docs/experts.json]

For each shape and number of tokens: the experts as they are computed, a dense layer whose width is what a token visits
(the floor), and all experts for every token. CPU seconds are user plus system time of the process, medians over the
repeats, in which the three take turns. Operations are counted by XLA; those of the loop over blocks, whose body XLA
counts once, by the number of blocks that the routing makes.
"""

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.models import grouped, layers, moe
from grpo_jax.models.spec import Experts

SHAPES = {
    "8 experts, 2 visited": (256, 128, 8, 2),
    "16 wide experts, 2 visited": (512, 512, 16, 2),
    "64 narrow experts, 4 visited": (256, 64, 64, 4),
}
"""Model width, width of an expert, experts, experts that a token visits."""
TOKENS = (4, 32, 512, 2048)


def main() -> None:
    """Runs the benchmark and writes its JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("docs/experts.json"))
    arguments = parser.parse_args()
    rows = [
        {"shape": name, "tokens": tokens, **measure(*shape, tokens, arguments.repeats)}
        for name, shape in SHAPES.items()
        for tokens in TOKENS
    ]
    arguments.out.write_text(json.dumps({"jax": jax.__version__, "repeats": arguments.repeats, "rows": rows}, indent=2))
    for row in rows:
        print(json.dumps(row))


def measure(D: int, F: int, E: int, A: int, N: int, repeats: int) -> dict[str, Any]:
    """CPU milliseconds and GFLOP of one layer, forward alone and with its derivative."""
    draw = functools.partial(np.random.default_rng(0).normal, scale=0.1)
    normal = lambda *shape: jnp.asarray(draw(size=shape), jnp.float32)  # noqa: E731
    x, router = 10 * normal(N, D), 10 * normal(D, E)
    stacked = (normal(E, D, F), normal(E, D, F), normal(E, F, D))
    dense = (normal(D, A * F), normal(D, A * F), normal(A * F, D))
    experts = Experts(E, A, F)
    forms: dict[str, tuple[Callable[..., jax.Array], Any]] = {
        "dense": (lambda x, _, weights: layers.gated(x @ weights[0], x @ weights[1]) @ weights[2], dense),
        "chosen": (lambda x, routing, weights: moe.chosen_experts(x, routing, weights, "silu"), stacked),
        "every": (every_expert, stacked),
    }
    timed: dict[str, Callable[[], Any]] = {}
    flops: dict[str, float] = {}
    for name, (form, weights) in forms.items():

        def layer(x: jax.Array, router: jax.Array, weights: Any, form: Callable[..., jax.Array] = form) -> jax.Array:
            return form(x, moe.route(experts, x @ router, None), weights)

        def loss(*inputs: Any, layer: Callable[..., jax.Array] = layer) -> jax.Array:
            return jnp.sum(jnp.sin(layer(*inputs)))

        for part, function in {"forward": layer, "with_derivative": jax.grad(loss, argnums=(0, 1, 2))}.items():
            compiled = jax.jit(function).lower(x, router, weights).compile()
            timed[f"{name}/{part}"] = functools.partial(compiled, x, router, weights)
            flops[f"{name}/{part}"] = compiled.cost_analysis()["flops"]
    load_E = np.bincount(np.asarray(moe.route(experts, x @ router, None).choice).reshape(-1), minlength=E)
    size = grouped.block_rows(N * A, E)
    blocks = int(np.sum(-(-load_E // size)))
    for part, products in (("forward", 3), ("with_derivative", 9)):
        flops[f"chosen/{part}"] = 2.0 * products * blocks * size * D * F
    seconds = medians(timed, repeats)
    return {
        "cpu_milliseconds": {name: round(1e3 * value, 3) for name, value in seconds.items()},
        "gigaflop": {name: round(value / 1e9, 4) for name, value in flops.items()},
        "block_rows": size,
        "blocks": blocks,
    }


def medians(timed: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """CPU seconds of each call; short ones are repeated within a measurement."""
    taken: dict[str, list[float]] = {name: [] for name in timed}
    calls = {}
    for name, call in timed.items():
        jax.block_until_ready(call())
        began = time.process_time()
        jax.block_until_ready(call())
        calls[name] = max(1, min(50, int(0.01 / max(time.process_time() - began, 1e-5))))
    for _ in range(repeats):
        for name, call in timed.items():
            began = time.process_time()
            for _ in range(calls[name]):
                jax.block_until_ready(call())
            taken[name].append((time.process_time() - began) / calls[name])
    return {name: statistics.median(values) for name, values in taken.items()}


def every_expert(x: jax.Array, routing: moe.Routing, weights: grouped.Weights) -> jax.Array:
    """All experts for every token, which is also how XLA's CPU computes ``jax.lax.ragged_dot``."""
    gate, up, down = weights
    chosen = routing.choice[:, :, None] == jnp.arange(len(gate))[None, None]
    share_NE = jnp.sum(jnp.where(chosen, routing.weight[:, :, None], 0), axis=1)
    hidden = layers.gated(jnp.einsum("ND,EDF->NEF", x, gate), jnp.einsum("ND,EDF->NEF", x, up), "silu")
    return jnp.einsum("NEF,EFD->ND", hidden * share_NE[:, :, None], down)


if __name__ == "__main__":
    main()
