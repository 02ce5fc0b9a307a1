"""Operator partitioning as a MILP (Pyomo, HiGHS): the sentences of CP-SAT's model (`models.assignment`), scaled."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.operator_partitioning.costs.shapes import shortage
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from formulations.operator_partitioning.models.assignment import largest_load
from formulations.operator_partitioning.models.first_plan import first_plan
from formulations.operator_partitioning.models.rows import Rows
from formulations.operator_partitioning.models.sentences import SENTENCES
from instances.problems.operator_partitioning import OperatorInstance
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum
from solvers.outcome import Limits, Watch


class Model(Rows, milp.Runnable):
    """A partition and the slowest stage over its replicas (``model.slowest``), in units of ``unit`` seconds."""

    def __init__(self, instance: OperatorInstance, known: float | None) -> None:
        super().__init__(instance, pyo.ConcreteModel())
        replicas = 1 if self.free else instance.replicas
        top = largest_load(instance)
        self.unit = (known * replicas if known else top) / milp.NATURAL or 1.0
        #: No load of interest is larger, in seconds.
        self.top = top
        if known:
            self.top = min(top, known * (instance.num_devices or replicas) * (1 + milp.ROOM))
        model = self.model
        model.takes = pyo.Var(self.taking, domain=pyo.Binary, doc=SENTENCES["takes"])
        model.leaves = pyo.Var(self.leaving, domain=pyo.Binary, doc=SENTENCES["leaves"])
        model.sends = pyo.Var(self.sending, domain=pyo.Binary, doc=SENTENCES["sends"])
        model.slowest = pyo.Var(bounds=(0, None), doc=SENTENCES["slowest"])
        self.takes, self.leaves, self.sends = model.takes, model.leaves, model.sends
        self._communication()
        self._times()
        model.objective = pyo.Objective(expr=model.slowest)

    def _communication(self) -> None:
        """M(s, s') of Equations 1 and 3; nothing but load keeps these variables down, so they need no upper rows."""
        model, tensors = self.model, self.instance.tensors

        def received(m: Any, t: int, target: int, s: int) -> Any:
            return m.takes[t, s] >= m.holds[target, s] - m.holds[tensors[t].source, s]

        targets = [(t, target, s) for t, s in self.taking for target in tensors[t].targets]
        model.received = pyo.Constraint(targets, rule=received, doc=SENTENCES["received"])

        def left(m: Any, t: int, s: int) -> Any:
            return m.leaves[t, s] >= m.holds[tensors[t].source, s] - m.holds[tensors[t].targets[0], s]

        model.left = pyo.Constraint(self.leaving, rule=left, doc=SENTENCES["left"])

        def sent(m: Any, t: int, s: int, q: int) -> Any:
            return m.sends[t, s, q] >= m.holds[tensors[t].source, s] + m.takes[t, q] - 1

        model.sent = pyo.Constraint(self.sending, rule=sent, doc=SENTENCES["sent"])

    def _times(self) -> None:
        """The slowest stage is at least as slow as every stage (Equation 1)."""
        model = self.model

        def time(s: int) -> Any:
            terms = self.seconds_of(s, model.takes, model.leaves, model.sends)
            return weighted_sum((milp.in_units(min(seconds, 2 * self.top), self.unit), each) for seconds, each in terms)

        if not self.free:
            # All stages have R replicas, so that is left to the objective:  t(s) <= slowest
            model.stage_time = pyo.Constraint(
                self.stages, rule=lambda m, s: time(s) <= m.slowest, doc=SENTENCES["stage_time"]
            )
            return

        # Big-M: no load of interest is above the largest one, so without r replicas the row says nothing.
        def stage_time(m: Any, s: int, r: int) -> Any:
            return time(s) <= r * m.slowest + self.top / self.unit * (1 - m.replicas[s, r])

        model.stage_time = pyo.Constraint(
            self.stages, [r for r in self.numbers() if r], rule=stage_time, doc=SENTENCES["stage_time"]
        )

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        replicas = 1 if self.free else self.instance.replicas
        return milp.trusted(bound, to_scale=True) * self.unit / replicas


def build(instance: OperatorInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; its numbers are those of the instance but for their scale.

    A load that no plan as fast as the best one that the watch knows has counts as no larger, unless ``complete``.
    """
    model = Model(instance, None if complete or watch is None else watch.best_objective)
    add_requirements(model, VOCABULARY, instance)
    return model


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)

    def model() -> Model:
        return build(instance, watch)

    first = first_plan(instance)
    reason = "no assignment fits"
    return prove(instance, model, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
