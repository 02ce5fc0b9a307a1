"""The quickest warm-ups of a partition: how many micro-batches its stages keep in flight.

A stage's order under 1F1B is F^l (B F)* B^l, and l is a choice: at least one more than behind it, at most what fits
into memory. Neither fewer nor more are always quicker, so ranges of l are bounded and halved (`kernels.warm_ups`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.costs.iteration import iteration_s, neighbours
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import all_reduce_s, pass_times, violations
from formulations.stage_graph.kernels.warm_ups import least_makespan
from instances.graph import topological_order
from solvers.outcome import Watch

#: The bound adds up in another order than the simulation.
_ROUNDING = 1e-11


class WarmUps:
    """The ranges of warm-ups that a plan's stages may have, and the quickest ones.

    ``plan`` has the fewest micro-batches in flight that it may have; its stages come in a topological order.
    """

    def __init__(self, costs: Costs, plan: StagePlan) -> None:
        self.costs, self.plan = costs, plan
        instance, stages = costs.instance, plan.stages
        self.size = stages[0].microbatch
        self.rounds = instance.minibatch // self.size
        self.fewest = np.array([stage.in_flight // self.size for stage in stages])
        times = [pass_times(instance, plan, index) for index in range(len(stages))]
        self._forward, self._backward = (np.array(each) for each in zip(*times, strict=True))
        self._before = neighbours(len(stages), [(after, source) for source, after in plan.edges])
        self._after = neighbours(len(stages), plan.edges)
        self.reduce_s = max(all_reduce_s(instance, stage) for stage in stages)
        self.simulated = 0

    def bound(self, fewest: np.ndarray, most: np.ndarray) -> float:
        """Seconds of an iteration, at least."""
        before, after = self._before, self._after
        passes = least_makespan(fewest, most, self._forward, self._backward, *before, *after, self.rounds)
        self.simulated += 1
        return float((passes + self.reduce_s) * (1 - _ROUNDING))

    def best_below(self, target_s: float, watch: Watch) -> tuple[StagePlan, float] | None:
        """The quickest plan that keeps all rules, within the target; ``None``: none does, or the watch stopped."""
        found = None
        most = np.array([self._most(index) for index in range(len(self.plan.stages))])
        open_ranges = [(self.fewest, most)]
        while open_ranges and not watch.stopped():
            fewest, most = self._narrow(*open_ranges.pop())
            if (fewest > most).any() or self.bound(fewest, most) >= target_s:
                continue
            plan = self._with(fewest)
            seconds = iteration_s(self.costs.instance, plan)
            if seconds < target_s and not judge(violations, self.costs.instance, plan):
                found, target_s = (plan, seconds), seconds
            widest = int(np.argmax(most - fewest))
            if most[widest] > fewest[widest]:
                middle = (most[widest] + fewest[widest]) // 2
                upper, lower = fewest.copy(), most.copy()
                upper[widest], lower[widest] = middle + 1, middle
                open_ranges += [(upper, most), (fewest, lower)]
        return found

    def _narrow(self, fewest: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range without warm-ups that are no more than those behind."""
        fewest, most = fewest.copy(), most.copy()
        for stage in topological_order(len(fewest), self.plan.edges)[::-1]:
            for source, target in self.plan.edges:
                if source == stage:
                    fewest[stage] = max(fewest[stage], min(self.rounds, fewest[target] + 1))
        for stage in topological_order(len(fewest), self.plan.edges):
            for source, target in self.plan.edges:
                if source == stage and most[source] < self.rounds:
                    most[target] = min(most[target], most[source] - 1)
        return fewest, most

    def _most(self, index: int) -> int:
        """Micro-batches in flight that fit into memory."""
        stage = self.plan.stages[index]
        nodes = sum(1 << node for node in stage.nodes)
        low, high = int(self.fewest[index]), self.rounds
        while low < high:
            middle = (low + high + 1) // 2
            held = self.costs.memory(nodes, self.size, stage.devices, middle * self.size)
            low, high = (middle, high) if held <= self.costs.instance.memory_bytes else (low, middle - 1)
        return low

    def _with(self, warm_ups: np.ndarray) -> StagePlan:
        stages = zip(self.plan.stages, warm_ups.tolist(), strict=True)
        return replace(self.plan, stages=tuple(replace(stage, in_flight=count * self.size) for stage, count in stages))
