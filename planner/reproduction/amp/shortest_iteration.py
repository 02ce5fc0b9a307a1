"""The strategy with the shortest simulated iteration, which Equation 4 does not minimise: with a proof.

Before stage s, of layers x to y - 1, begins, the first micro-batch has passed all stages in front and their cuts; after
it ends, the last one goes back through them. Of its m micro-batches at most k = min(p - s, m) are in flight under 1F1B.
Each of them takes D seconds or more from its forward pass in s to the end of its backward pass: its own time t, and the
way to the last stage and back. So with q = ceil(m / k) no iteration is shorter than::

    way in and out + max(m t, (q - 1) D + max(D, (m - (q - 1) k) t)) + the longest all-reduce

Times of layers in front and behind are sums, and of a cut the cheapest place counts: so the bound depends on s, x and y
alone. Strategies and beginnings of their stages come in its order, until none can beat the best that was simulated.

Source: this project. A forward pass waits for the backward pass k before it, which ends D after its own or later.
"""

import heapq
import math
from dataclasses import dataclass
from itertools import accumulate

from formulations.amp_strategy.definition.clock import clock
from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.amp_strategy.definition.problem import layer_assignment, placements
from formulations.amp_strategy.paper.amp import possible_degrees
from formulations.layer_assignment.definition.problem import parameters_of
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Watch

#: Sums of bounds and of simulations are made in another order: a bound gives this part of it up.
_ROUNDING = 1e-12
#: Of some stages of a strategy: a bound, the strategy, their lengths, the largest term and all-reduce of them.
_Beginning = tuple[float, int, tuple[int, ...], float, float]


@dataclass(frozen=True)
class Found:
    """The best plan, its simulated iteration and a lower bound on that of any plan; plans that were simulated."""

    plan: StrategyPlan | None
    iteration_s: float
    bound_s: float
    simulated: int


def shortest_iteration(instance: AmpInstance, watch: Watch) -> Found:
    """The shortest iteration of all strategies; stopped, the best so far and its bound."""
    pairs = [(degrees, each) for degrees in possible_degrees(instance) for each in placements(instance, degrees)]
    tables = [Bounds(layer_assignment(instance, *pair)) for pair in pairs]
    waiting: list[_Beginning] = [
        (table.pipeline_s[0][0] + table.rings_s[0][0], each, (), 0.0, 0.0) for each, table in enumerate(tables)
    ]
    heapq.heapify(waiting)
    best, best_s, simulated = None, math.inf, 0
    while waiting and waiting[0][0] * (1 - _ROUNDING) < best_s and not watch.stopped():
        _, each, lengths, term_s, ring_s = heapq.heappop(waiting)
        table, stage, start = tables[each], len(lengths), sum(lengths)
        if stage == table.layers.num_stages:
            simulated += 1
            plan = _plan(pairs[each], lengths)
            found_s = clock(instance, plan).iteration_s
            if found_s is not None and found_s < best_s:
                best, best_s = plan, found_s
            continue
        for end in range(start + 1, table.layers.num_layers + 1):
            term = max(term_s, table.stage_s(stage, start, end))
            ring = max(ring_s, table.ring_s(stage, start, end))
            bound = max(term, table.pipeline_s[stage + 1][end]) + max(ring, table.rings_s[stage + 1][end])
            if bound * (1 - _ROUNDING) < best_s:
                heapq.heappush(waiting, (bound, each, (*lengths, end - start), term, ring))
    rest = waiting[0][0] * (1 - _ROUNDING) if waiting else math.inf
    return Found(best, best_s, min(best_s, rest), simulated)


def _plan(pair: tuple[Degrees, tuple[int, ...]], lengths: tuple[int, ...]) -> StrategyPlan:
    degrees, placement = pair
    return StrategyPlan(degrees, lengths, placement)


class Bounds:
    """Of a layer assignment's stages: bounds on the pipeline, and of what is left behind a beginning.

    ``pipeline_s[s][x]`` and ``rings_s[s][x]``: the least that the largest term, and the longest all-reduce, of stages s
    and on can be if they have the layers from x on; infinite if there is no such split.
    """

    def __init__(self, layers: LayerAssignmentInstance) -> None:
        self.layers, p, n = layers, layers.num_stages, layers.num_layers
        self._until = [0.0, *accumulate(layers.least_time_s)]
        self._own = [[0.0, *accumulate(layers.times(stage))] for stage in range(p)]
        cheapest = [min(layers.cut_cost(layer, stage) for layer in range(n - 1)) for stage in range(p - 1)]
        self._cuts_until = [0.0, *accumulate(cheapest)]
        self.pipeline_s, self.rings_s = ([[math.inf] * (n + 1) for _ in range(p + 1)] for _ in range(2))
        for table, of in ((self.pipeline_s, self.stage_s), (self.rings_s, self.ring_s)):
            table[p][n] = 0.0
            for stage in range(p - 1, -1, -1):
                for start in range(n):
                    ends = (end for end in range(start + 1, n + 1) if table[stage + 1][end] < math.inf)
                    table[stage][start] = min(
                        (max(of(stage, start, end), table[stage + 1][end]) for end in ends), default=math.inf
                    )

    def stage_s(self, stage: int, start: int, end: int) -> float:
        """What the pipeline takes at least, because of a stage of layers ``start`` to ``end - 1``."""
        m = self.layers.num_microbatches
        in_flight = min(self.layers.num_stages - stage, m)
        own = self._own[stage][end] - self._own[stage][start]
        in_and_out = self._until[start] + self._cuts_until[stage]
        round_trip = own + self._until[-1] - self._until[end] + self._cuts_until[-1] - self._cuts_until[stage]
        rounds = -(-m // in_flight)
        last = max(round_trip, (m - (rounds - 1) * in_flight) * own)
        return in_and_out + max(m * own, (rounds - 1) * round_trip + last)

    def ring_s(self, stage: int, start: int, end: int) -> float:
        """The stage's all-reduce."""
        return self.layers.ring(stage) * parameters_of(self.layers, start, end)
