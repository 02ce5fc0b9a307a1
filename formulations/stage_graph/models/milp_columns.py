"""Stage graphs as one MILP over columns (Pyomo, HiGHS): degrees, depth and micro-batch size chosen together.

A column is a convex set of operators as a stage: at a depth, on so many devices, with micro-batches of a size. What
such a stage takes and needs is a constant, so nothing is rounded but the unit: C1 to C4 and Equation 2 are a cover of
the operators by columns, Equation 1 its objective. Source: this project.
"""

# mypy: disallow_untyped_calls=False

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, add_requirements, check_stop, prove
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, evaluate, violations
from formulations.stage_graph.definition.quantities import VOCABULARY, required_sizes
from formulations.stage_graph.models.first_plan import first_plan
from formulations.stage_graph.upsets.bounds import simple_bound
from formulations.stage_graph.upsets.chains import Chains, TooManyError
from instances.graph import topological_order
from instances.problems.stage_graph import StageGraph
from solvers.memory_budget import SizeError
from solvers.milp import backend as milp
from solvers.outcome import Limits, Prover, Stop, Watch

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
    """Number of a set, stages from it to the end (itself among them), devices, samples of a micro-batch."""

    number: int
    depth: int
    devices: int
    size: int


@dataclass(frozen=True)
class Data:
    """Columns (n, d, r, b) of ``instance``.

    ``masks``: the operators of set n, as bits: a convex set for each tensor-parallel degree that all of them declare.
    ``time``: TPS(n, b, r) of each column, in units of ``unit`` seconds per sample.
    ``sizes``: micro-batch sizes to choose from.
    ``tp_degrees``: that of set n.
    """

    instance: StageGraph
    masks: Sequence[int]
    time: Mapping[Column, float]
    sizes: tuple[int, ...]
    unit: float
    tp_degrees: Sequence[int]


def data_of(instance: StageGraph, watch: Watch, *, complete: bool) -> Data:
    """All columns but those that are slower than the watch's best plan, unless ``complete``.

    `TooManyError` if there are too many; `formulations.modelling.solve_model.Stopped` once the watch is.
    """
    costs = Costs(instance)
    shared = [Costs(instance, t) for t in instance.tp_degrees]
    sets = [(nodes, own) for nodes in ConvexSets(costs, watch).masks for own in shared if not nodes & own.lacking]
    check_stop(watch)
    known = None if complete else watch.best_objective
    unit = (known or simple_bound(costs)) / milp.NATURAL or 1.0
    most = math.inf if known is None else known * (1 + _MARGIN)
    columns = {column: time for column, time in _columns(sets, watch) if time <= most}
    if known is None and not complete:
        columns = {column: min(time, _FAR * milp.NATURAL * unit) for column, time in columns.items()}
    times = {column: milp.in_units(time, unit) for column, time in columns.items()}
    masks, degrees = [nodes for nodes, _ in sets], [own.tp_degree for _, own in sets]
    sizes = required_sizes(instance) or instance.microbatch_sizes
    return Data(instance, masks, times, sizes, unit, degrees)


def _columns(sets: Sequence[tuple[int, Costs]], watch: Watch) -> Iterable[tuple[Column, float]]:
    """What fits into memory, with its seconds per sample. A depth beyond the last one of interest is the last one."""
    instance, count = sets[0][1].instance, 0
    longest = min(instance.num_devices, instance.num_operators)
    for size in required_sizes(instance):
        # More may be in flight than must be: up to the mini-batch, before whatever chain of stages.
        depths = range(1, instance.minibatch // size + longest)
        for (number, (nodes, own)), r in product(enumerate(sets), range(1, min(instance.num_devices, size) + 1)):
            check_stop(watch)
            devices = r * own.tp_degree
            if devices > instance.num_devices:
                continue
            for depth in depths:
                in_flight = min(depth * size, instance.minibatch)
                if own.memory(nodes, size, r, in_flight) > instance.memory_bytes:
                    break
                count += 1
                if count > MAX_COLUMNS:
                    raise TooManyError(f"more than {MAX_COLUMNS} columns")
                yield Column(number, depth, devices, size), own.tps(nodes, size, r)


def build(data: Data) -> Any:
    """The model: a cover of all operators by columns of one size."""
    operators, edges = range(data.instance.num_operators), data.instance.edges
    columns = list(data.time)
    holding = [[column for column in columns if data.masks[column.number] >> v & 1] for v in operators]
    model = pyo.ConcreteModel()
    taken = model.taken = pyo.Var(
        columns,
        domain=pyo.Binary,
        doc="taken[n,d,r,b]: set n is a stage with r devices, d micro-batches of b samples in flight",
    )
    model.size = pyo.Var(data.sizes, domain=pyo.Binary, doc="size[b]: micro-batches have b samples")
    model.bottleneck = pyo.Var(domain=pyo.NonNegativeReals, doc="seconds per sample of the slowest stage")
    model.one_size = pyo.Constraint(expr=pyo.quicksum(model.size.values()) == 1, doc="one size for all stages")

    model.one_stage = pyo.Constraint(
        operators,
        data.sizes,
        rule=lambda m, v, b: pyo.quicksum(taken[column] for column in holding[v] if column.size == b) == m.size[b],
        doc="the stages are a partition: sum of taken[n,d,r,b] with v = size[b] [GraphPipe, section 3, C1]",
    )

    # A depth that is larger than it need be costs memory and nothing else (Appendix A.1, i_x = i_y + b).
    def falls(_: Any, e: int) -> Any:
        source, target = holding[edges[e].source], holding[edges[e].target]
        if not source:
            return pyo.Constraint.Skip  # and no size is left
        fall = pyo.quicksum(column.depth * taken[column] for column in source)
        fall -= pyo.quicksum(column.depth * taken[column] for column in target)
        return fall + pyo.quicksum(taken[column] for column in set(source) & set(target)) >= 1

    model.falling_depth = pyo.Constraint(
        range(len(edges)),
        rule=falls,
        doc="along an edge the depth falls by 1, unless a column has both ends [GraphPipe, section 3, C2]",
    )
    devices = pyo.quicksum(column.devices * taken[column] for column in columns)
    model.enough_devices = pyo.Constraint(
        expr=pyo.inequality(None, devices, data.instance.num_devices) if columns else pyo.Constraint.Feasible,
        doc="the devices of stages are disjoint: sum of r taken[n,d,r,b] <= D [GraphPipe, section 3, C3]",
    )
    model.time = pyo.Constraint(
        operators,
        rule=lambda m, v: m.bottleneck >= pyo.quicksum(data.time[column] * taken[column] for column in holding[v]),
        doc="the bottleneck takes as long as the stage of each operator: >= TPS(S) [GraphPipe, Equation 1]",
    )
    model.slowest = pyo.Objective(expr=model.bottleneck)
    return model


def strengthen(model: Any, data: Data) -> None:
    """Rows that follow from the others: each stage keeps r devices busy for as long as it takes."""
    busy = pyo.quicksum(column.devices * time * model.taken[column] for column, time in data.time.items())
    model.work = pyo.Constraint(
        expr=data.instance.num_devices * model.bottleneck >= busy,
        doc="implied: all devices together are busy for D times the bottleneck",
    )


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """The model of ``data``."""

    model: Any
    data: Data

    def __post_init__(self) -> None:
        self.instance, self.masks = self.data.instance, self.data.masks

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution, with as many samples in flight as the columns keep."""
        taken = [Column(*index) for index, each in self.model.taken.items() if values[each] > 0.5]
        stages = [
            Stage(nodes, each.devices, each.size, self._in_flight(each), tp_degree=self.data.tp_degrees[each.number])
            for each in taken
            for nodes in [tuple(bits(self.masks[each.number]))]
        ]
        idle = self.instance.num_devices - sum(stage.devices for stage in stages)
        return StagePlan(tuple(stages), data_edges(self.instance, stages), idle)

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, float]]:
        """The values of all columns and sizes in a plan; depths are those that its samples in flight declare."""
        numbers = {each: number for number, each in enumerate(zip(self.masks, self.data.tp_degrees, strict=True))}
        depth = [stage.in_flight // stage.microbatch for stage in plan.stages]
        for index in topological_order(len(plan.stages), plan.edges)[::-1]:
            behind = [depth[after] for before, after in plan.edges if before == index]
            depth[index] = max([depth[index], *(each + 1 for each in behind)])
        taken = {
            Column(numbers[nodes, stage.tp_degree], depth[index], stage.devices, stage.microbatch)
            for index, stage in enumerate(plan.stages)
            for nodes in [sum(1 << v for v in stage.nodes)]
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
        return milp.proved_bound(bound, to_scale=True) * self.data.unit


def model_of(instance: StageGraph, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all plans with one micro-batch size for all stages, among those required (`data_of`).

    `SizeError` if there are too many columns; `formulations.modelling.solve_model.Stopped` once ``watch`` is.
    """
    try:
        data = data_of(instance, watch or Watch(), complete=complete)
    except TooManyError as error:
        raise SizeError(str(error)) from None
    model = build(data)
    strengthen(model, data)
    found = Model(model, data)
    add_requirements(found, VOCABULARY, instance)
    return found


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum with one micro-batch size for all stages; a plan and a bound where columns are too many."""
    found = prove(
        instance,
        lambda: model_of(instance, watch),
        evaluate,
        violations,
        limits,
        watch,
        to_scale=True,
        first=first_plan(instance, limits),
        reason="no partition fits into memory",
    )
    if found.stop is Stop.SIZE_LIMIT:
        watch.bound(simple_bound(Costs(instance)), Prover.BOUNDS)
        return replace(found, bound=watch.best_bound, proved_by="")
    return found
