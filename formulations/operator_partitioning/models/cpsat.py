"""Operator partitioning for CP-SAT: operators assigned to stages (`models.assignment`), and what the stages take."""

from __future__ import annotations

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.operator_partitioning.costs.costs import load_bound
from formulations.operator_partitioning.costs.shapes import shortage
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from formulations.operator_partitioning.models.assignment import largest_load
from formulations.operator_partitioning.models.first_plan import first_plan
from formulations.operator_partitioning.models.partition import Partition, whole_sum
from instances.problems.operator_partitioning import OperatorInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale


class Model(Partition, cpsat.Runnable):
    """A partition and the slowest stage over its replicas (``slowest``), in units of ``scale``."""

    scale: Scale

    def __init__(self, instance: OperatorInstance) -> None:
        super().__init__(instance, cpsat.SpokenModel())
        self.takes = self.booleans("takes", self.taking)
        self.leaves = self.booleans("leaves", self.leaving)
        self.sends = self.booleans("sends", self.sending)
        self._communication()
        self._times()
        self.model.minimize(self.slowest)

    def _communication(self) -> None:
        """M(s, s') of Equations 1 and 3; nothing but load keeps these variables down, so they need no upper rows."""
        model, holds, tensors = self.model, self.holds, self.instance.tensors
        for t, s in self.taking:
            for target in tensors[t].targets:
                needed = holds[target, s] - holds[tensors[t].source, s]
                model.add(self.takes[t, s] >= needed).with_name(f"received[{t},{target},{s}]")

        for t, s in self.leaving:
            elsewhere = holds[tensors[t].source, s] - holds[tensors[t].targets[0], s]
            model.add(self.leaves[t, s] >= elsewhere).with_name(f"left[{t},{s}]")

        for t, s, q in self.sending:
            crosses = holds[tensors[t].source, s] + self.takes[t, q] - 1
            model.add(self.sends[t, s, q] >= crosses).with_name(f"sent[{t},{s},{q}]")

    def _times(self) -> None:
        """The slowest stage is at least as slow as every stage (Equation 1)."""
        instance, model = self.instance, self.model
        times = [self.seconds_of(s, self.takes, self.leaves, self.sends) for s in self.stages]
        devices, top = instance.num_devices or 0, largest_load(instance)
        roundings = max(map(len, times), default=1) + devices
        self.scale = cost_scale(load_bound(instance), roundings, top * (1 + devices))
        self.slowest = model.new_int_var(0, self.scale.ceil(top), "slowest")
        for s in self.stages:
            time = whole_sum(times[s], self.scale)
            if not self.free:
                # All stages have R replicas, so that is left to the objective:  t(s) <= slowest
                model.add(time <= self.slowest).with_name(f"stage_time[{s}]")
                continue
            for r in self.numbers():
                if r:
                    row = model.add(time <= r * self.slowest).only_enforce_if(self.replicas[s, r])
                    row.with_name(f"stage_time[{s},{r}]")

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        units = cpsat.whole(bound) - self.free  # the slowest stage is whole, a load over its replicas need not be
        seconds = self.scale.restore(units) / (1 if self.free else self.instance.replicas)
        return max(0.0, seconds * (1 - 1e-14))


def build(
    instance: OperatorInstance,
    watch: Watch | None = None,  # noqa: ARG001 - no plan prunes it
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The model; costs are rounded down to units, sizes down and limits up."""
    model = Model(instance)
    add_requirements(model, VOCABULARY, instance)
    return model


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)
    lower = load_bound(instance)
    watch.bound(lower, Prover.BOUNDS)
    first = first_plan(instance)
    reason = "no assignment fits"
    return prove(instance, lambda: build(instance), evaluate, violations, limits, watch, reason=reason, first=first)
