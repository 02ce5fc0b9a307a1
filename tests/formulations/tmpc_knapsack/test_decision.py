"""The knapsack in decision form where many nodes save the same bytes at different costs."""

import itertools
import random
import time

import numpy as np

from formulations.compiled.numba_kernels import FOUND, NONE
from formulations.tmpc_knapsack.kernels.decision import decide


def ask(nodes, capacity: float, budget: float) -> tuple[int, list[int]]:
    """The verdict on nodes given as lists of (cost, memory), and the choice."""
    start = np.cumsum([0, *map(len, nodes)])
    cost = np.array([float(x) for options in nodes for x, _ in options])
    memory = np.array([float(x) for options in nodes for _, x in options])
    choice = np.zeros(len(nodes), np.int64)
    verdict = decide(len(nodes), start, cost, memory, capacity, budget, choice, np.zeros(1, np.uint8))
    return verdict, choice.tolist()


def test_nodes_of_equal_memory_against_brute_force(cases: int) -> None:
    """Two patterns of memory and small costs: nodes follow each other, or miss it by one step."""
    for seed in range(5 * cases):
        rng = random.Random(seed)
        patterns = [sorted(rng.sample(range(12), rng.choice([2, 2, 3])), reverse=True) for _ in range(2)]
        nodes = []
        for _ in range(rng.randint(2, 6)):
            pattern, cost = rng.choice(patterns), rng.randint(0, 3)
            options = []
            for size in pattern:
                options.append((cost, size))
                cost += rng.randint(0, 4)
            nodes.append(rng.sample(options, len(options)))
        capacity = rng.randint(0, sum(max(x for _, x in options) for options in nodes))
        totals = [(sum(c for c, _ in chosen), sum(x for _, x in chosen)) for chosen in itertools.product(*nodes)]
        least = min((c for c, x in totals if x <= capacity), default=None)
        if least is None:
            assert ask(nodes, capacity, 1e9)[0] == NONE, seed
            continue
        verdict, choice = ask(nodes, capacity, least)
        assert verdict == FOUND, seed
        assert sum(options[x][0] for options, x in zip(nodes, choice, strict=True)) <= least
        assert sum(options[x][1] for options, x in zip(nodes, choice, strict=True)) <= capacity
        assert ask(nodes, capacity, least - 0.5)[0] == NONE, seed


def test_equal_layers_of_several_kinds_against_how_many_of_each_choose_what(cases: int) -> None:
    """Runs of equal increments are summed at once (`_runs`), and what is behind a node counts the rest of its run."""
    for seed in range(cases):
        rng = random.Random(seed)
        kinds = [
            list(zip(sorted(rng.sample(range(40), 3)), sorted(rng.sample(range(30), 3), reverse=True), strict=True))
            for _ in range(2)
        ]
        sizes = [rng.randint(1, 12), rng.randint(1, 12)]
        nodes = rng.sample([kind for kind, size in zip(kinds, sizes, strict=True) for _ in range(size)], sum(sizes))
        of_kind = [
            [
                (sum(n * c for n, (c, _) in zip(taken, kind, strict=True)), sum(map(_bytes, taken, kind)))
                for a in range(size + 1)
                for b in range(size + 1 - a)
                for taken in [(a, b, size - a - b)]
            ]
            for kind, size in zip(kinds, sizes, strict=True)
        ]
        lightest = sum(min(x for _, x in totals) for totals in of_kind)
        capacity = lightest + rng.randint(0, 60)
        least = min(c + d for c, x in of_kind[0] for d, y in of_kind[1] if x + y <= capacity)
        assert ask(nodes, capacity, least)[0] == FOUND, seed
        assert ask(nodes, capacity, least - 0.5)[0] == NONE, seed


def _bytes(count: int, option: tuple[int, int]) -> int:
    return count * option[1]


def test_layers_of_a_transformer_are_no_search() -> None:
    """Forty nodes that save the same bytes: how many must save is known, and the cheapest of them do."""
    rng = random.Random(1)
    rises = [rng.randint(1000, 1100) for _ in range(40)]
    nodes = [[(1000, 10), (1000 + rise, 3)] for rise in rises]
    capacity = 40 * 10 - 7 * 20 - 3  # 21 of them must save, the relaxation says 20.4
    least = 40 * 1000 + sum(sorted(rises)[:21])
    before = time.process_time()
    assert ask(nodes, capacity, least)[0] == FOUND
    assert ask(nodes, capacity, least - 1)[0] == NONE
    assert time.process_time() - before < 5
