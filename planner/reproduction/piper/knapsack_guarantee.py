"""What the bang-per-buck heuristics promise: a factor for the truncating one, none for the others.

| Symbol | Here                                                                                    |
|--------|-----------------------------------------------------------------------------------------|
| F, Z*  | total time of the fastest options, least total time of a choice that fits               |
| R_k    | bytes by which the choice exceeds the capacity before swap k, k = 1, ..., n             |
| s_k    | bytes that swap k saves; it adds c_k to the time                                        |

**Truncating.** Its time is at most F + H (Z* - F) with H = sum of min(s_k, R_k) / R_k. Proof: consider the nodes whose
option is larger than in a best choice. Moving all of them there saves at least R_k and adds at most Z* - F, since no
option is faster than the node's fastest. So some swap has min(s, R_k) / c >= R_k / (Z* - F), and the one taken has,
too: c_k <= (Z* - F) min(s_k, R_k) / R_k. Since 1 - 1/x <= ln x, H <= 1 + ln(R_1 / R_n), and H <= n: for whole bytes
the factor grows at most with the logarithm of the excess. `hard_for_truncating` shows that no constant is enough.

**Re-ranking and sorting once** have no factor at all: `hard_for_ratios`.

Source: Piper, Appendix C (which suggests such a guarantee "with minor modifications", after Csirik et al. 1991); the
statement and the proof are reconstructed, by the argument for greedy covers (Wolsey 1982).
"""

import math

from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode


def truncating_factor(instance: KnapsackInstance) -> float:
    """H of the truncating heuristic's own swaps; 0 if the fastest options fit, infinite if nothing does."""
    limit = instance.capacity_bytes * MEMORY_SLACK
    chosen = [min(node.options, key=lambda option: option.time) for node in instance.nodes]
    factor = 0.0
    while (excess := math.fsum(option.memory_bytes for option in chosen) - limit) > 0:
        swaps = [
            (_ratio(chosen[v], option, excess), -v, -x)
            for v, node in enumerate(instance.nodes)
            for x, option in enumerate(node.options)
            if option.memory_bytes < chosen[v].memory_bytes
        ]
        if not swaps:
            return math.inf
        _, v, x = max(swaps)  # the lowest node and option among equals
        option = instance.nodes[-v].options[-x]
        factor += min(chosen[-v].memory_bytes - option.memory_bytes, excess) / excess
        chosen[-v] = option
    return factor


def hard_for_truncating(num_swaps: int, slack: float = 1e-6) -> KnapsackInstance:
    """The truncating heuristic takes about 1 + n/2 times the least time, which is 1; its H is 1 + n/2.

    One node saves all that is needed for a time of 1. Each of n others saves half of what is left when its turn comes,
    at a slightly lower price.
    """
    need = 2.0**num_swaps
    nodes = [_pair("all", need, 1.0)]
    nodes += [_pair(f"half {k}", need / 2**k, (1 - slack) / 2) for k in range(1, num_swaps + 1)]
    return KnapsackInstance(f"hard-for-truncating-{num_swaps}", tuple(nodes), need - 1)


def hard_for_ratios(factor: float) -> KnapsackInstance:
    """Re-ranking and sorting once take ``factor`` (> 1) times the least time, which is 1; truncating finds it.

    A byte is needed. One node saves it for a time of 1, the other twice ``factor`` bytes for a time of ``factor``.
    """
    return KnapsackInstance(
        "hard-for-ratios", (_pair("enough", 1.0, 1.0), _pair("too much", 2 * factor, factor)), 2 * factor
    )


def _pair(name: str, saving: float, time: float) -> KnapsackNode:
    return KnapsackNode(name, (Choice("fast", 0.0, saving), Choice("small", time, 0.0)))


def _ratio(current: Choice, option: Choice, excess: float) -> float:
    """Bytes saved that are still needed, per time added."""
    added = option.time - current.time
    return min(current.memory_bytes - option.memory_bytes, excess) / added if added > 0 else math.inf
