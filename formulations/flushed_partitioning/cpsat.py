"""Flushed stage partitioning in CP-SAT: the flat assignment model with depth, bottleneck and synchronisation apart.

Source: this project; symbols as in the flat family's model. C is the slowest step, R the longest synchronisation, L the
stages on the longest path, m the micro-batches of a batch; the objective is (m + L - 1) C + m R, all times m.
"""

from __future__ import annotations

from typing import Any

from formulations.family import Answer
from formulations.flushed_partitioning.problem import evaluate, violations
from formulations.stage_partitioning import cpsat as flat_cpsat
from formulations.stage_partitioning.assignment import Terms
from formulations.stage_partitioning.problem import MEMORY_SLACK, StagePlan, allowed_dp_degrees
from formulations.stage_partitioning.proof import Stopped
from instances.flushed_partitioning import FlushedInstance, Schedule
from solvers import cpsat
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch, relative_gap


class Model(flat_cpsat.Model):
    """The flat model of the weightless instance (``time`` is C), with R and the objective added.

    Raises
    ------
    formulations.stage_partitioning.proof.Stopped
        Once the watch is.
    """

    def __init__(self, instance: FlushedInstance, watch: Watch) -> None:
        self.instance = instance
        super().__init__(Terms(instance.weightless), None, watch)
        self.weighted = Terms(instance.flat)
        m, cp = instance.flat.num_microbatches, self.cp
        most = self.costs.ceil(self._synchronisation(max(allowed_dp_degrees(instance.flat)), self._largest_weight()))
        self.synchronisation = cp.new_int_var(0, most, "synchronisation")
        self.total = cp.new_int_var(0, (m + len(self.terms.stages)) * self.upper + m * most, "total")
        for j in self.terms.stages:
            self._synchronise(j)
        for depth, reached in enumerate(self._depths(), start=1):
            # With that many stages on a path, a batch takes m + depth - 1 steps of the bottleneck.
            cp.add(self.total >= (m + depth - 1) * self.time + m * self.synchronisation).only_enforce_if(reached)
        cp.minimize(self.total)

    def _depths(self) -> list[Any]:
        """For every depth from 1 on whether some path has that many stages; the first is always true."""
        cp, stages = self.cp, self.terms.stages
        # Stages on the longest path from a position on, itself included.
        level = [cp.new_int_var(1, len(stages), "") for _ in stages]
        for u, v in self.instance.flat.edge_indices:
            for j in stages:
                for after in range(j + 1, len(stages)):
                    # An edge from position j to a later one puts j in front of it.
                    ends = [self.holds[u, j], self.holds[v, after]]
                    cp.add(level[j] >= level[after] + 1).only_enforce_if(ends)
        reached = [cp.new_constant(1), *(cp.new_bool_var("") for _ in stages[1:])]
        for depth in range(2, len(stages) + 1):
            for j in stages:
                cp.add(level[j] <= depth - 1).only_enforce_if(~reached[depth - 1])
        return reached

    def _largest_weight(self) -> float:
        return sum(option.tmpc.weight_bytes for option in self.weighted.options)

    def _synchronisation(self, d: int, weight: float) -> float:
        flat = self.instance.flat
        return 4 * (d - 1) / d * weight / flat.bandwidth / flat.num_microbatches

    def _synchronise(self, j: int) -> None:
        """4 (d-1)/d W / (B m) is at most R."""
        for d in self.terms.dp_degrees:
            costs = [self.costs.floor(self._synchronisation(d, o.tmpc.weight_bytes)) for o in self.weighted.options]
            total = sum((cost * var for cost, var in zip(costs, self._choices(j), strict=True)), start=0)
            self.cp.add(total <= self.synchronisation).only_enforce_if(self.copies[j, d])

    def _memory(self, j: int) -> None:
        """As in the flat model; under GPipe all m micro-batches are in flight before the first backward pass."""
        if self.instance.schedule is not Schedule.GPIPE:
            super()._memory(j)
            return
        limit = self.sizes.floor(self.terms.instance.memory_bytes * MEMORY_SLACK)
        for d in self.terms.dp_degrees:
            y = -(-self.instance.flat.num_microbatches // d)
            sizes = [self.sizes.floor(o.tmpc.activation_bytes * y + o.tmpc.static_bytes) for o in self.terms.options]
            total = sum((size * var for size, var in zip(sizes, self._choices(j), strict=True)), start=0)
            self.cp.add(total <= limit).only_enforce_if(self.copies[j, d])

    def lower_bound(self, bound: float) -> float:
        """C and R are rounded up to whole units, and the objective is times m."""
        m = self.instance.flat.num_microbatches
        return max(0.0, self.costs.restore((bound - (2 * m + len(self.terms.stages))) / m))

    def forbid(self, values: cpsat.Values) -> None:
        """Not this combination of decisions, which only rounded bytes allowed."""
        decided = [*self.choice.values(), *self.degrees.values()]
        self.cp.add_bool_or([~var for var in decided if values[var]])


def build(instance: FlushedInstance, watch: Watch | None = None) -> Model:
    """The CP-SAT model of an instance. Raises `proof.Stopped` once the watch is."""
    return Model(instance, watch or Watch())


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT."""

    def hear(values: Any) -> set[str]:
        plan = model.decode(values)
        broken = {found.rule for found in violations(instance, plan)}
        if not broken:
            watch.plan(plan, evaluate(instance, plan))
        return broken

    def told(bound: float) -> None:
        watch.bound(model.lower_bound(bound))

    try:
        model = build(instance, watch)
    except Stopped:
        return Answer(stop=watch.why())
    while True:
        run = cpsat.run(model.cp, limits, watch, on_solution=lambda values: _ignore(hear(values)), on_bound=told)
        if run.values is None or not (broken := hear(run.values)):
            break
        if broken != {"memory"}:
            raise RuntimeError(f"the model accepts a plan that breaks {', '.join(sorted(broken))}")
        model.forbid(run.values)
    if run.bound is not None:
        told(run.bound)
    gap = relative_gap(watch.best_objective, watch.best_bound)
    proved = run.infeasible or (gap is not None and gap <= OPTIMAL_GAP)
    return Answer(
        plan=watch.best_plan,
        bound=None if run.infeasible else watch.best_bound,
        infeasible=run.infeasible and watch.best_plan is None,
        stop=Stop.COMPLETED if run.stop is Stop.PROVED and not proved else run.stop,
        solver=run.solver,
        reason="the model has no solution" if run.infeasible else "",
        stats=run.stats,
    )


def _ignore(_: object) -> None:
    """A listener returns nothing."""
