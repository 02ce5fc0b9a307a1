"""The least slowest stage over the chains of a family of downsets: halving the threshold of kernels.labels.

First every tensor that leaves a stage counts once, whatever stages it goes to: a relaxation, and exact where tensors
have one target. Only what that leaves open is searched with counts.

Source: this project.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats2, Words
from formulations.operator_partitioning.costs.arrays import Graph, Rows
from formulations.operator_partitioning.costs.costs import ROUNDING, counts, graph, memory_rules, narrow, plan_of, rows
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate
from formulations.operator_partitioning.kernels import labels, published
from instances.problems.operator_partitioning import OperatorInstance
from solvers.memory_budget import demand
from solvers.outcome import Prover, Stop, Watch

#: Thresholds are distinguished to this relative precision.
PRECISION = 1e-10

#: More labels than this are not kept (about 100 bytes each).
_MAX_LABELS = 4_000_000


@dataclass
class Found:
    """The best plan, its objective, a lower bound over the family, and the effort."""

    plan: OperatorPlan | None
    value: float
    bound: float
    infeasible: bool = False
    stop: Stop = Stop.PROVED
    steps: int = 0
    labels: int = 0
    tests: int = 0


class Search:
    """Threshold tests over one family of downsets of an instance with a given S."""

    def __init__(self, instance: OperatorInstance, bits: Words, watch: Watch) -> None:
        assert instance.num_stages is not None
        self._instance = instance
        self._stages = instance.num_stages
        self._watch = watch
        self._graph: Graph = graph(instance)
        self._every: Rows = rows(instance, self._graph, bits)
        self._rules = memory_rules(instance)
        self._report = np.zeros(4)
        cells = len(bits) * (self._stages + 1)
        demand(16.0 * cells, f"{len(bits)} downsets at each of {self._stages} stages")
        self._begin()
        self._tests = 0
        self._single = all(len(tensor.targets) == 1 for tensor in instance.tensors)

    def least(
        self, lower: float, plan: OperatorPlan | None = None, cap_bytes: float = math.inf, report: bool = True
    ) -> Found:
        """The best plan whose stages hold at most ``cap_bytes`` of parameters.

        ``lower`` is a lower bound on it, ``plan`` a feasible start (none of it needs to be of the family). With
        ``report`` plans and bounds go to the watch.
        """
        self._best, self._value, self._reports = None, math.inf, report
        self._begin()
        if plan is not None:
            self._keep(plan)
        if self._best is None:
            status, first = self._test(self._ceiling(), cap_bytes, blind=True)
            if status != labels.FOUND or first is None:
                return self._result(lower, status)
            self._keep(first)
        self._rows, self._ahead = narrow(self._instance, self._every, self._value)
        lower = max(lower, min(self._value, float(self._ahead.min(axis=0).max())))
        if report:
            self._watch.bound(lower * (1 - ROUNDING), Prover.BOUNDS)
        if self._instance.num_devices is None and cap_bytes == math.inf:
            low, status = self._relax(lower)
        else:
            low, status = self._halve(lower, cap_bytes, blind=True)
        if status == labels.NONE:
            low, status = self._halve(low, cap_bytes, blind=False)
        return self._result(low, status)

    def _begin(self) -> None:
        self._rows, self._ahead = self._every, np.zeros((len(self._every.bits), self._stages + 1))

    def _relax(self, low: float) -> tuple[float, int]:
        """The least slowest stage where a tensor that leaves counts once: Equation 2, up to the plan at hand."""
        ceiling = self._value * (1 - PRECISION)
        best, before, steps = fill(self._instance, self._graph, self._rows, ceiling, self._watch, self._ahead)
        self._report[1] += abs(steps)
        if steps < 0:
            return low, int(labels.STOPPED)
        self._ahead = best
        value = float(best[-1, self._stages])
        if value < math.inf:
            self._keep(plan_of_table(self._instance, self._rows, before))
        found = min(value, ceiling) * (1 - PRECISION / 10)
        if self._reports:
            self._watch.bound(found * (1 - ROUNDING))
        low = max(low, found)
        return low, int(labels.NONE)

    def limit_memory(self, memory_bytes: float) -> None:
        """Search on with another memory of a device; it may not be ``None`` in the instance."""
        self._rules = memory_rules(replace(self._instance, memory_bytes=memory_bytes))

    def any_plan(self) -> OperatorPlan | None:
        """Some plan of the family, ``None`` if there is none or the run was stopped."""
        self._begin()
        return self._test(self._ceiling(), math.inf, blind=True)[1]

    def _halve(self, low: float, cap: float, blind: bool) -> tuple[float, int]:
        """Close in on the least threshold with a plan; no plan has less than the first value returned."""
        high, at_low = self._value, not blind
        while high - low > 2 * PRECISION * high:
            # In turn just above the bound, which is often attained, and in the middle.
            middle = min(low * (1 + PRECISION), high) if at_low else low + (high - low) / 2
            at_low = not at_low
            status, plan = self._test(middle, cap, blind)
            if status == labels.FOUND and plan is not None:
                self._keep(plan)
                high = min(middle, self._value)
            elif status == labels.NONE:
                low = max(middle, min(high, float(self._report[3]) * (1 - PRECISION / 10)))
                if self._reports:
                    self._watch.bound(low * (1 - ROUNDING))
            else:
                return low, status
        return low, labels.NONE

    def _test(self, threshold: float, cap: float, blind: bool) -> tuple[int, OperatorPlan | None]:
        instance, stages = self._instance, self._stages
        free = instance.num_devices is not None
        chain, replicas = np.zeros(stages + 1, np.int64), np.zeros(stages, np.int64)
        self._tests += 1
        self._watch.stopped()
        status = labels.threshold_test(
            self._rows, self._graph, counts(instance), self._rules, threshold, cap, blind or self._single, self._ahead,
            _MAX_LABELS, chain, replicas, self._report, np.frombuffer(self._watch.flag, np.uint8),
        )  # fmt: skip
        if status != labels.FOUND:
            return int(status), None
        count = int(self._report[0])
        each = [int(each) for each in replicas[:count]] if free else [instance.replicas] * count
        return int(status), plan_of(self._rows.bits, chain[: count + 1].tolist(), each, len(instance.operators))

    def _keep(self, plan: OperatorPlan) -> None:
        value = evaluate(self._instance, plan)
        if value < self._value:
            self._best, self._value = plan, value
            if self._reports:
                self._watch.plan(plan, value)

    def _ceiling(self) -> float:
        """No stage takes longer than this."""
        table = self._graph
        sent = np.diff(table.start) * table.seconds
        return float(table.compute.sum() + 2 * sent.sum()) * 2 + 1.0

    def _result(self, low: float, status: int) -> Found:
        stop = Stop.PROVED
        if status == labels.STOPPED:
            stop = self._watch.why()
        elif status == labels.TOO_MANY:
            stop = Stop.SIZE_LIMIT
        return Found(
            plan=self._best,
            value=self._value,
            bound=min(low * (1 - ROUNDING), self._value),
            infeasible=self._best is None and status == labels.NONE,
            stop=stop,
            steps=int(self._report[1]),
            labels=int(self._report[2]),
            tests=self._tests,
        )

    _best: OperatorPlan | None
    _value: float
    _reports: bool


def fill(
    instance: OperatorInstance, table: Graph, family: Rows, ceiling: float, watch: Watch, least: Floats2 | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """``best``, ``before`` and the steps of `kernels.published.fill_table`, for the tensors of ``table``."""
    assert instance.num_stages is not None
    shape = (len(family.bits), instance.num_stages + 1)
    best, before = np.empty(shape), np.empty(shape, np.int64)
    least = np.zeros(shape) if least is None else least
    steps = published.fill_table(
        family, table, counts(instance), memory_rules(instance), ceiling, least, best, before,
        np.frombuffer(watch.flag, np.uint8),
    )  # fmt: skip
    return best, before, int(steps)


def plan_of_table(instance: OperatorInstance, family: Rows, before: NDArray[np.int64]) -> OperatorPlan:
    """The plan behind the last entry of the table."""
    chain = chain_to(before, len(family.bits) - 1, instance.num_stages or 1)
    return plan_of(family.bits, chain, [instance.replicas] * (len(chain) - 1), len(instance.operators))


def chain_to(before: NDArray[np.int64], row: int, stages: int) -> list[int]:
    """The rows of the chain behind an entry of the table, from the empty one on."""
    chain = [row]
    for s in range(stages, 0, -1):
        if row:
            row = int(before[row, s])
            chain.append(row)
    return chain[::-1]


def effort_stats(found: Found, downsets: int) -> dict[str, Any]:
    """What a search took, for results."""
    return {"downsets": downsets, "tests": found.tests, "steps": found.steps, "labels": found.labels}
