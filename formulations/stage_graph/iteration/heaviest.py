"""What the stage of the heaviest operator takes at least: a minimum cut, for the search over partitions.

Source: made for this project (minimum cuts of stages).
"""

from typing import Any

import numpy as np

from formulations.stage_graph.costs.costs import Costs, bits
from solvers.outcome import Watch

#: A stage that takes less of the target than this bounds nothing that is worth its cuts.
_SHARE = 0.25
#: Cuts are sums in another order than the definition's.
_ROUNDING = 1e-11


def heaviest_stage(
    costs: Costs, size: int, passes: Any, alone: Any, target_s: float, watch: Watch
) -> tuple[Any, float]:
    """N t of the stage of the heaviest operator w, at least, and ``together``: the same if it has v, which leads to w.

    The pair is `kernels.partitions.Model`'s. ``passes[v, r]`` are seconds of both passes of v at micro-batch ``size``;
    ``alone``: the same, ``inf`` on degrees with which v is in no stage that keeps the target.

    A stage S on r devices takes its operators' passes and what its tensors take that cross its border. With the least
    passes and the fewest samples of any of the degrees, that is a cut: the operators of S on one side, the others with
    the sink on the other. The minimum cut with w on its side is at most t. As S is convex, with v it also has all that
    is between v and w; these are on the side, too.

    Proof for the search: w is in the stage of v, which takes N t; or its stage comes behind that of v, and has the end
    of one micro-batch of it in its head.
    """
    import networkx

    instance = costs.instance
    rounds, together = instance.minibatch // size, np.zeros(instance.num_operators)
    heaviest = int(np.argmax(alone.min(axis=1)))
    degrees = np.flatnonzero(np.isfinite(alone[heaviest]))
    if not len(degrees):
        return together, 0.0
    least, samples = passes[:, degrees].min(axis=1), -(-size // int(degrees.max()))
    graph = networkx.DiGraph()
    graph.add_edge("source", heaviest)
    for v in range(instance.num_operators):
        graph.add_edge(v, "sink", capacity=least[v])
    for edge in instance.edges:
        sent = 2 * (instance.latency_s + edge.bytes_per_sample * samples / instance.bandwidth_bytes_per_s)
        graph.add_edge(edge.source, edge.target, capacity=sent)
        graph.add_edge(edge.target, edge.source, capacity=sent)

    def cut_s(nodes: int) -> float:
        inside = graph.copy()
        inside.add_edges_from(("source", v) for v in bits(nodes))
        return float(rounds * networkx.minimum_cut_value(inside, "source", "sink") * (1 - _ROUNDING))

    alone = cut_s(1 << heaviest)
    if alone < _SHARE * target_s:
        return together, 0.0
    together[heaviest] = alone
    for v in bits(costs.below[heaviest]):
        if watch.stopped():  # what is left is bounded by nothing
            break
        together[v] = cut_s(1 << v | costs.above[v] & costs.below[heaviest])
    return together, alone
