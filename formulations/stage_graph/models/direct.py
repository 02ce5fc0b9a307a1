"""Stage graphs as one MILP over columns (Pyomo, HiGHS): degrees, depth and micro-batch size chosen together.

A column is a convex set of operators as a stage: at a depth, on so many devices, with micro-batches of a size. What
such a stage takes and needs is a constant, so nothing is rounded but the unit: C1 to C4 and Equation 2 are a cover of
the operators by columns, Equation 1 its objective. `columns` looks for the target outside of its models, which is
faster; this one has all plans at once, and with them whatever requirements speak of. Source: this project.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pyomo.environ as pyo

from formulations.compiled.memory_budget import SizeError
from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, begin_with, go_on, prove, require
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, evaluate, violations
from formulations.stage_graph.definition.quantities import VOCABULARY, required_sizes
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets.bounds import simple_bound
from formulations.stage_graph.upsets.chains import Chains, TooManyError
from instances.graph import topological_order
from instances.problems.stage_graph import StageGraph
from solvers.milp import backend as milp
from solvers.outcome import Limits, Stop, Watch

#: More convex sets, or columns of this model, are not given to HiGHS.
MAX_SETS, MAX_COLUMNS = 4_000, 40_000

#: Relative room for rounding where what is too slow is left out.
_MARGIN = 1e-9

#: Where no plan is known that meets the requirements, columns count up to so many times the unit's plan.
_FAR = 1e3


class ConvexSets(Chains):
    """The convex sets of operators, which are the differences of upsets, as ``masks``; `TooManyError` if too many."""

    sequential = False

    def __init__(self, costs: Costs, watch: Watch) -> None:
        operators = [1 << node for node in range(costs.instance.num_operators)]
        super().__init__(costs, watch, operators, range(1, costs.instance.num_devices + 1))

    def lay_out_sets(self) -> None:
        """Nothing but the sets is needed."""
        if len(self.masks) > MAX_SETS:
            raise TooManyError(f"{len(self.masks)} convex sets; expected at most {MAX_SETS}")


class Column(NamedTuple):
    """Number of a convex set, stages from it to the end (itself among them), devices, samples of a micro-batch."""

    number: int
    depth: int
    devices: int
    size: int


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """``model.taken[n, d, r, b]``; the objective is the bottleneck in units of ``unit`` seconds per sample."""

    model: Any
    instance: StageGraph
    masks: Sequence[int]
    unit: float

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution, with as many samples in flight as the columns keep."""
        taken = [Column(*index) for index, each in self.model.taken.items() if values[each] > 0.5]
        stages = [
            Stage(tuple(bits(self.masks[each.number])), each.devices, each.size, self._in_flight(each))
            for each in taken
        ]
        idle = self.instance.num_devices - sum(stage.devices for stage in stages)
        return StagePlan(tuple(stages), data_edges(self.instance, stages), idle)

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, float]]:
        """The values of all columns and sizes in a plan; depths are those that its samples in flight declare."""
        numbers = {nodes: number for number, nodes in enumerate(self.masks)}
        depth = [stage.in_flight // stage.microbatch for stage in plan.stages]
        for index in topological_order(len(plan.stages), plan.edges)[::-1]:
            behind = [depth[after] for before, after in plan.edges if before == index]
            depth[index] = max([depth[index], *(each + 1 for each in behind)])
        taken = {
            Column(numbers[sum(1 << v for v in stage.nodes)], depth[index], stage.devices, stage.microbatch)
            for index, stage in enumerate(plan.stages)
        }
        yield from ((each, float(Column(*column) in taken)) for column, each in self.model.taken.items())
        yield from ((each, float(size == plan.stages[0].microbatch)) for size, each in self.model.size.items())

    def _in_flight(self, column: Column) -> int:
        return min(column.depth * column.size, self.instance.minibatch)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over the columns."""
        index = self.instance.index

        def over(amount: Callable[[Column], int], *operators: int | str) -> Any:
            """The sum of an amount over the columns that hold all these operators."""
            nodes = sum({1 << index[operator] for operator in operators})
            return milp.weighted_sum(
                (amount(Column(*column)), each)
                for column, each in self.model.taken.items()
                if self.masks[column[0]] & nodes == nodes
            )

        return {
            "num_stages": lambda: over(lambda _: 1),
            "same_stage": lambda operator, other: over(lambda _: 1, operator, other),
            "devices_of": lambda operator: over(lambda column: column.devices, operator),
            "in_flight_of": lambda operator: over(self._in_flight, operator),
            "microbatch": lambda: milp.weighted_sum((size, each) for size, each in self.model.size.items()),
            "idle_devices": self._idle,
        }

    def _idle(self) -> Any:
        """All devices, once for the size that is chosen, less those of the columns."""
        devices = ((-Column(*column).devices, each) for column, each in self.model.taken.items())
        return milp.weighted_sum([(self.instance.num_devices, each) for each in self.model.size.values()] + [*devices])

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds per sample, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=True) * self.unit


def build(instance: StageGraph, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all plans with one micro-batch size for all stages, among those required.

    Columns that are slower than the watch's best plan (that of ``graphpipe-plus`` is reported to it) are left out,
    unless it is ``complete``.

    Raises
    ------
    SizeError
        If there are too many columns.
    Stopped
        Once ``watch`` is stopped.
    """
    watch = watch or Watch()
    try:
        return built(instance, watch, complete=complete)
    except TooManyError as error:
        raise SizeError(str(error)) from None


def built(instance: StageGraph, watch: Watch, *, complete: bool = False) -> Model:
    """As `build`, but `TooManyError` if there are too many columns."""
    costs = Costs(instance)
    masks = ConvexSets(costs, watch).masks
    first = fewest_devices.solve(instance, Limits(), watch.part(silent=True)).plan
    if not complete:
        begin_with(instance, first, evaluate, violations, watch)
    go_on(watch)
    known = None if complete else watch.best_objective
    reference = simple_bound(costs) if first is None else evaluate(instance, first)
    unit = (known or reference) / milp.NATURAL or 1.0
    most = math.inf if known is None else known * (1 + _MARGIN)
    columns = {column: time for column, time in _columns(costs, masks, watch) if time <= most}
    if known is None and not complete:
        columns = {column: min(time, _FAR * milp.NATURAL * unit) for column, time in columns.items()}
    model = _cover(instance, masks, columns, unit)
    found = Model(model, instance, masks, unit)
    require(found, VOCABULARY, instance)
    if watch.best_plan is not None:
        found.begin_with(found.values_of(watch.best_plan))
    return found


def _columns(costs: Costs, masks: Sequence[int], watch: Watch) -> Iterable[tuple[Column, float]]:
    """What fits into memory, with its seconds per sample. A depth beyond the last one of interest is the last one."""
    instance, count = costs.instance, 0
    longest = min(instance.num_devices, instance.num_operators)
    for size in required_sizes(instance):
        # More may be in flight than must be: up to the mini-batch, before whatever chain of stages.
        depths = range(1, instance.minibatch // size + longest)
        for number, devices in product(range(len(masks)), range(1, min(instance.num_devices, size) + 1)):
            go_on(watch)
            for depth in depths:
                in_flight = min(depth * size, instance.minibatch)
                if costs.memory(masks[number], size, devices, in_flight) > instance.memory_bytes:
                    break
                count += 1
                if count > MAX_COLUMNS:
                    raise TooManyError(f"more than {MAX_COLUMNS} columns")
                yield Column(number, depth, devices, size), costs.tps(masks[number], size, devices)


def _cover(instance: StageGraph, masks: Sequence[int], columns: Mapping[Column, float], unit: float) -> Any:
    """The Pyomo model: columns with their seconds per sample."""
    model = pyo.ConcreteModel()
    sizes = required_sizes(instance) or instance.microbatch_sizes
    operators, edges = range(instance.num_operators), range(len(instance.edges))
    model.taken = pyo.Var(
        list(columns),
        domain=pyo.Binary,
        doc="taken[n,d,r,b]: set n is a stage with r devices, d micro-batches of b samples in flight",
    )
    model.size = pyo.Var(sizes, domain=pyo.Binary, doc="size[b]: micro-batches have b samples")
    model.bottleneck = pyo.Var(domain=pyo.NonNegativeReals, doc="seconds per sample of the slowest stage")
    holding: list[list[Column]] = [[column for column in columns if masks[column.number] >> v & 1] for v in operators]
    times = {column: milp.in_units(time, unit) for column, time in columns.items()}

    model.one_size = pyo.Constraint(expr=pyo.quicksum(model.size.values()) == 1, doc="one size for all stages")
    model.one_stage = pyo.Constraint(
        operators,
        sizes,
        rule=lambda m, v, b: pyo.quicksum(m.taken[column] for column in holding[v] if column.size == b) == m.size[b],
        doc="the stages are a partition: sum of taken[n,d,r,b] with v = size[b] [GraphPipe, section 3, C1]",
    )

    def falling(m: Any, e: int) -> Any:
        source, target = instance.edges[e].source, instance.edges[e].target
        if not holding[source]:
            return pyo.Constraint.Skip  # and no size is left
        falls = pyo.quicksum(column.depth * m.taken[column] for column in holding[source])
        falls -= pyo.quicksum(column.depth * m.taken[column] for column in holding[target])
        inner = [column for column in holding[source] if masks[column.number] >> target & 1]
        return falls + pyo.quicksum(m.taken[column] for column in inner) >= 1

    model.falling_depth = pyo.Constraint(
        edges,
        rule=falling,
        doc="along an edge the depth falls by 1, unless a column has both ends [GraphPipe, section 3, C2]",
    )
    devices = pyo.quicksum(column.devices * each for column, each in _pairs(model))
    model.enough_devices = pyo.Constraint(
        expr=pyo.inequality(None, devices, instance.num_devices) if columns else pyo.Constraint.Feasible,
        doc="the devices of stages are disjoint: sum of r taken[n,d,r,b] <= D [GraphPipe, section 3, C3]",
    )
    model.time = pyo.Constraint(
        operators,
        rule=lambda m, v: m.bottleneck >= pyo.quicksum(times[column] * m.taken[column] for column in holding[v]),
        doc="the bottleneck takes as long as the stage of each operator: >= TPS(S) [GraphPipe, Equation 1]",
    )
    busy = pyo.quicksum(column.devices * times[column] * each for column, each in _pairs(model))
    model.work = pyo.Constraint(
        expr=instance.num_devices * model.bottleneck >= busy,
        doc="implied: all devices together are busy for D times the bottleneck",
    )
    model.slowest = pyo.Objective(expr=model.bottleneck)
    return model


def _pairs(model: Any) -> Iterable[tuple[Column, Any]]:
    return ((Column(*index), each) for index, each in model.taken.items())


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by this model."""
    try:
        return prove(instance, lambda: built(instance, watch), evaluate, violations, limits, watch, to_scale=True)
    except TooManyError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
