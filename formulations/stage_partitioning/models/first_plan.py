"""A first plan for the declarative models: stages are intervals of one topological order, knapsacks are greedy.

No claim but feasibility (the caller checks it): it gives the models an upper bound that owes nothing to the exact
method. Source: this project; the recursion is Piper's, section 4, on a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from instances.graph import topological_order
from solvers.outcome import Watch

#: Stages are priced in Python; with more of them than this the pass takes too long.
MAX_STAGES = 40_000


@dataclass(frozen=True)
class _Label:
    """The best suffix of the order with ``devices`` devices and degrees summing to s: its slowest stage's time."""

    time: float
    stage: Chosen | None = None
    rest: _Label | None = None


def known_plan(terms: Terms, watch: Watch) -> StagePlan | None:
    """The best plan that the watch knows, or else `first_plan`, reported to it; ``None`` if there is neither."""
    return watch.best_plan or first_plan(terms, watch)


def first_plan(terms: Terms, watch: Watch) -> StagePlan | None:
    """A feasible plan, reported to ``watch``; ``None`` if the pass finds none, would take too long, or was stopped.

    The pass knows nothing of requirements: a plan that does not meet them is none.
    """
    size = len(terms.nodes) ** 2 * sum(len(terms.in_flight(d)) for _, d in terms.configs) // 2
    if size > MAX_STAGES:
        return None
    plan = _Pass(terms, watch).plan()
    if plan is None or violations(terms.instance, plan):
        return None
    watch.plan(plan, evaluate(terms.instance, plan))
    return plan


class _Pass:
    def __init__(self, terms: Terms, watch: Watch) -> None:
        self.terms = terms
        self.watch = watch
        self.order = topological_order(len(terms.nodes), terms.instance.edge_indices)
        self.priced: dict[tuple[int, int, int, int, int], tuple[float, Chosen] | None] = {}

    def plan(self) -> StagePlan | None:
        """Extend suffixes of the order by a stage in front, keeping the fastest per (devices, s)."""
        n, instance = len(self.order), self.terms.instance
        labels: list[dict[tuple[int, int], _Label]] = [{} for _ in range(n)] + [{(0, 0): _Label(0.0)}]
        for last in range(n, 0, -1):
            for (devices, s), label in labels[last].items():
                for first in range(last - 1, -1, -1):
                    if self.watch.stopped():
                        return None
                    for t, d in self._affordable(devices, s):
                        found = self._stage(first, last, t, d, -(-(s + d) // d))
                        if found is None:
                            continue
                        time, state = max(label.time, found[0]), (devices + t * d, s + d)
                        best = labels[first].get(state)
                        if best is None or time < best.time:
                            labels[first][state] = _Label(time, found[1], label)
        N = instance.num_microbatches
        ends = [label for (_, s), label in labels[0].items() if not instance.exactly or s == N]
        return self._restore(min(ends, key=lambda label: label.time)) if ends else None

    def _affordable(self, devices: int, s: int) -> Iterator[tuple[int, int]]:
        for t, d in self.terms.configs:
            if devices + t * d <= self.terms.instance.num_devices and s + d <= self.terms.max_s:
                yield t, d

    def _stage(self, first: int, last: int, t: int, d: int, in_flight: int) -> tuple[float, Chosen] | None:
        key = (first, last, t, d, in_flight)
        if key not in self.priced:
            options = self._greedy(self.order[first:last], t, in_flight)
            self.priced[key] = None if options is None else self._price(Chosen(t, d, options))
        return self.priced[key]

    def _greedy(self, nodes: list[int], t: int, in_flight: int) -> tuple[int, ...] | None:
        """The fastest TMPCs, swapped for leaner ones, most bytes per time lost first, until the stage fits."""
        terms, limit = self.terms, self.terms.instance.memory_bytes

        def time(option: int) -> float:
            return terms.options[option].tmpc.time

        def memory(option: int) -> float:
            x = terms.options[option].tmpc
            return x.activation_bytes * in_flight + x.static_bytes

        found: list[tuple[int, ...]] = [
            tuple(o for o in terms.of_node[node] if terms.options[o].tp_degree == t) for node in nodes
        ]
        if not all(found):
            return None
        chosen = [min(options, key=lambda o: (time(o), memory(o))) for options in found]
        total = sum(map(memory, chosen))
        while total > limit:
            swaps = [
                ((memory(now) - memory(o)) / max(time(o) - time(now), 1e-30), place, o)
                for place, now in enumerate(chosen)
                for o in found[place]
                if memory(o) < memory(now)
            ]
            if not swaps:
                return None
            _, place, option = max(swaps)
            total -= memory(chosen[place]) - memory(option)
            chosen[place] = option
        return tuple(chosen)

    def _price(self, stage: Chosen) -> tuple[float, Chosen]:
        return evaluate(self.terms.instance, self.terms.plan([stage])), stage

    def _restore(self, label: _Label) -> StagePlan:
        stages, at = [], label
        while at.stage is not None and at.rest is not None:
            stages.append(at.stage)
            at = at.rest
        return self.terms.plan(stages)
