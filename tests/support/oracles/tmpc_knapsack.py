"""Brute force and random instances for TMPC knapsacks; shares no code with the rooms."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from hypothesis import strategies as st

from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode

Row = Sequence[tuple[float, float]]


def make(capacity_bytes: float, *rows: Row, name: str = "knapsack") -> KnapsackInstance:
    """Node v has one option per pair (time, memory) of row v, named by the letters from "a" on."""
    return KnapsackInstance(
        name,
        tuple(
            KnapsackNode(
                v, tuple(Choice(chr(ord("a") + j), float(time), float(memory)) for j, (time, memory) in enumerate(row))
            )
            for v, row in enumerate(rows)
        ),
        float(capacity_bytes),
    )


def optimum(instance: KnapsackInstance) -> float | None:
    """Least total time over all choices that fit, summed exactly and rounded once; ``None`` if none fits."""
    limit = instance.capacity_bytes * (1 + 1e-12)
    best: Fraction | None = None
    for picked in itertools.product(*(node.options for node in instance.nodes)):
        if float(sum((Fraction(option.memory_bytes) for option in picked), Fraction(0))) <= limit:
            time = sum((Fraction(option.time) for option in picked), Fraction(0))
            best = time if best is None else min(best, time)
    return None if best is None else float(best)


def plans(instance: KnapsackInstance) -> Iterator[dict[str, dict[str, str]]]:
    """Every choice, in JSON form; what does not fit as well."""
    for picked in itertools.product(*(node.options for node in instance.nodes)):
        yield {"choice": {str(node.id): option.id for node, option in zip(instance.nodes, picked, strict=True)}}


#: How a random (time, memory) arises; the names say what is hard about it.
MODES = ("small integers", "equal ratios", "fractions", "wide ranges", "zeros", "few kinds", "bytes")


def _pair(rng: random.Random, mode: str) -> tuple[float, float]:
    if mode == "small integers":
        return rng.randint(0, 6), rng.randint(0, 6)
    if mode == "equal ratios":
        size = rng.randint(0, 12)
        return 12 - size, size
    if mode == "fractions":
        return rng.random(), rng.random()
    if mode == "wide ranges":
        return rng.random() * 10 ** rng.randint(-9, 6), float(int(rng.random() * 10 ** rng.randint(0, 13)))
    if mode == "zeros":
        return rng.choice([0.0, 0.0, 1.5]), rng.choice([0.0, 0.0, 4.0])
    if mode == "few kinds":
        return rng.choice([(1.0, 9.0), (1.25, 4.0), (1.5, 3.0), (3.0, 0.0)])
    return rng.uniform(1e-3, 1e-1), float(rng.randint(1, 2**33))


def random_instance(rng: random.Random, max_nodes: int = 6, max_options: int = 4) -> KnapsackInstance:
    """Up to ``max_nodes`` nodes; the capacity lies from a little below feasible to a little above irrelevant."""
    mode = rng.choice(MODES)
    rows = [[_pair(rng, mode) for _ in range(rng.randint(1, max_options))] for _ in range(rng.randint(0, max_nodes))]
    least = math.fsum(min(memory for _, memory in row) for row in rows)
    most = math.fsum(max(memory for _, memory in row) for row in rows)
    capacity = max(0.0, least + (most - least) * rng.uniform(-0.1, 1.1))
    if rng.random() < 0.5:  # exactly what some choice needs
        capacity = math.fsum(rng.choice(row)[1] for row in rows)
    return make(capacity, *rows, name=f"{mode} {len(rows)}")


_numbers = st.one_of(
    st.integers(0, 8).map(float), st.floats(1e-30, 1e6), st.sampled_from([0.0, 1e-9, 0.1, 0.2, 0.3, 1e13])
)
_rows = st.lists(st.lists(st.tuples(_numbers, _numbers), min_size=1, max_size=4), max_size=5)


@st.composite
def knapsacks(draw: st.DrawFn) -> KnapsackInstance:
    """Small instances whose capacity is often exactly what some choice needs."""
    rows = draw(_rows)
    capacity = draw(_numbers) if draw(st.booleans()) else math.fsum(draw(st.sampled_from(row))[1] for row in rows)
    return make(capacity, *rows)
