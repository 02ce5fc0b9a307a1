"""What both solvers' models of a schedule share: plans, requirements, and what is cut off."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import evaluate, violations
from formulations.microbatch_schedule.feasibility import figures, no_schedule
from formulations.microbatch_schedule.models.data import Data, Pairs
from formulations.microbatch_schedule.models.first_plan import first_plan
from formulations.modelling.solve_model import Model, prove
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Watch


class ScheduleModel:
    """A model of ``data``: ``start[p]`` are the starts of passes, and ``pairs`` say which of two comes first."""

    data: Data
    start: Any
    pairs: Pairs
    iteration: Any
    peaks: dict[int, Any]
    cuts: int = 0
    add_row: Any  # these are the solver's (`Runnable`, `ByName`)
    new_integer: Any
    new_row: Any

    def decode(self, values: Any) -> SchedulePlan:
        """The plan of a solution: its orders, with the seconds as declared.

        Passes within a solver's tolerances may come in orders that get stuck; these are repaired.
        """
        return SchedulePlan(run(PassGraph(self.data.graph.instance), self.orders(values), repair=True).passes)

    def orders(self, values: Any) -> list[list[int]]:
        """The order of each device's passes in a solution: each behind as many as come before it."""
        known = {pair: round(values[literal]) for pair, literal in self.pairs.items()}
        graph, found = self.data.graph, []
        for device in range(len(graph.instance.stages_on)):
            own = graph.on(device)
            place = {p: sum(self.data.goes_first(known, p, q) for q in own if q != p) for p in own}
            found.append(sorted(own, key=lambda p: (place[p], p)))
        return found

    def values_of(self, plan: SchedulePlan) -> Iterator[tuple[Any, float]]:
        """The starts of all passes in a plan's orders, which of two comes first, and its iteration."""
        graph = self.data.graph
        trace = run(graph, graph.orders_of(plan.passes))
        start = {graph.number(task.stage, task.kind, task.index): task.start_s for task in trace.passes}
        yield from ((self.start[number], time) for number, time in start.items())
        yield from ((literal, float(start[b] < start[f])) for (f, b), literal in self.pairs.items())
        yield self.iteration, trace.iteration_s

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a schedule, from the order of its passes."""
        graph = self.data.graph
        return {
            "warm_up": lambda stage: self.data.in_flight(self.pairs, stage, graph.number(stage, "B", 0)),
            "in_flight": self._most,
        }

    def _most(self, stage: int) -> Any:
        """In flight at most; between two releases the number only grows, so one of them begins at the peak."""
        if stage in self.peaks:
            return self.peaks[stage]
        count = self.data.graph.counts[stage]
        most = self.peaks[stage] = self.new_integer(
            "most", (stage,), count, "most[s]: most micro-batches that stage s has in flight, for a requirement"
        )
        peaks = [
            self.new_integer(
                "at_peak",
                (stage, j),
                1,
                "at_peak[s,j]: stage s holds most when backward pass j starts, for a requirement",
            )
            for j in range(count)
        ]
        self.new_row(
            "one_peak", (stage,), sum(peaks) == 1, "it holds most at some backward pass: sum of at_peak[s,j] = 1"
        )
        for j, peak in enumerate(peaks):
            held = self.data.in_flight(self.pairs, stage, self.data.graph.release(stage, j))
            self.new_row(
                "most_held",
                (stage, j),
                most >= held,
                "it is no less than what the stage holds when backward pass j starts: most[s] >= 1 + forward passes "
                "behind forward pass j that come first",
            )
            self.new_row(
                "peak_held",
                (stage, j),
                most <= held + count * (1 - peak),
                "it is no more than what the stage holds then: most[s] <= held at j + m (1 - at_peak[s,j]); big-M: m "
                "micro-batches of the stage",
            )
        return most

    def cut_off(self, plan: SchedulePlan, _values: Any) -> None:
        """Forbid the orders along a longest chain of a schedule that is late: with all of them every schedule is.

        Of a schedule in which stages hold more than the memory that they share, all orders of such devices.
        """
        graph = PassGraph(self.data.graph.instance)
        orders = graph.orders_of(plan.passes)
        if graph.fits(orders):
            steps = list(_longest_chain(graph, plan))
        else:
            steps = [
                pair for d, order in enumerate(orders) if graph.shares_memory(d) for pair in combinations(order, 2)
            ]
        kept = [self.data.goes_first(self.pairs, q, p) for p, q in steps if {(p, q), (q, p)} & self.pairs.keys()]
        self.add_row(f"forbidden[{self.cuts}]", sum(kept), "<=", len(kept) - 1)
        self.cuts += 1


def _longest_chain(graph: PassGraph, plan: SchedulePlan) -> Iterator[tuple[int, int]]:
    """Along the passes that keep an iteration from ending sooner: two of a device, the second right after the first."""
    trace = run(graph, graph.orders_of(plan.passes))
    passes = {graph.number(each.stage, each.kind, each.index): each for each in trace.passes}
    ended = {(graph.device[number], each.end_s): number for number, each in passes.items()}
    here = max(passes, key=lambda number: passes[number].end_s)
    while passes[here].start_s > 0:
        start = passes[here].start_s
        waited = [number for number, lag in graph.before[here] if passes[number].end_s + lag == start]
        if waited:
            here = waited[0]
            continue
        earlier = ended[graph.device[here], start]
        yield earlier, here
        here = earlier


def solve_by(
    model_of: Callable[[ScheduleInstance, Watch], Model[SchedulePlan]],
    instance: ScheduleInstance,
    limits: Limits,
    watch: Watch,
) -> Answer[SchedulePlan]:
    """The best schedule and the solver's proof, from the schedule of ``best-of`` on."""
    first, reason = first_plan(instance, limits), no_schedule(instance)
    found = prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, reason=reason, first=first
    )
    return replace(found, stats={**figures(instance, found.plan), **found.stats})
