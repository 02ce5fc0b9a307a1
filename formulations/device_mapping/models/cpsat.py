"""Device mapping for CP-SAT: devices of stage replicas, classes of bandwidth, the slowest stage as objective.

Bandwidths fall into classes, class 0 the fastest. Where they are few, a link takes what the class takes that it
reaches; where they are many, what its own devices take, and classes of bandwidths that are rounded up follow. The
replicas of a stage, rings and devices that a symmetry of the topology exchanges are numbered in one of all equivalent
ways, unless requirements distinguish them. Source: the problem is Parmesan's (section 5), the model is this project's.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.device_mapping.data.arrays import Arrays, Floats, arrays, plan_of
from formulations.device_mapping.definition.plan import Mapping as Plan
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.models.classes import FEW_LEVELS, round_up_speeds
from formulations.device_mapping.models.first_plan import ceiling, first_plan
from formulations.device_mapping.models.symmetry import canonical, device_order, in_turn
from formulations.modelling.solve_model import WithoutSizes, add_requirements, check_stop, prove
from instances.problems.device_mapping import DeviceMapping
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum

#: A stage's replica, or a position of its ring: for each device whether it is there.
Node = list[Any]


class Part(NamedTuple):
    """What takes time: the name and number of its variable, its bytes, and the two ends of each of its links."""

    name: str
    number: tuple[int, ...]
    volume: float
    links: list[tuple[Node, Node]]

    def label(self, group: str, *more: int | str) -> str:
        """The name of a variable or row of a group."""
        return f"{group}[{','.join(map(str, (*self.number, *more)))}]"


@dataclass(frozen=True)
class Data:
    """An instance, and what becomes whole units of ``scale``: times are rounded down, ``top`` up.

    ``given``: S stages, R replicas, D devices, ``speed[d, e]``, ``edges`` (s, s', bytes), ``ring[s]`` bytes of a ring's
    link.
    ``classes``: bandwidths, descending: of each class the fastest. ``reached[k][d]``: devices that links of class k or
    faster lead to from device d.
    ``is_exact``: whether the classes are the bandwidths; else these are rounded up.
    ``top``: no plan of interest takes more units.
    ``longest_s``: links that take longer than so many seconds count as that.
    ``order``, ``orbit``: of equivalent plans (`symmetry.device_order`).
    """

    given: Arrays
    scale: Scale
    classes: Floats
    reached: list[list[list[int]]]
    is_exact: bool
    top: int
    longest_s: float
    order: list[int]
    orbit: list[int]

    def units(self, volume: float, bandwidth: float) -> int:
        """What a link of so many bytes takes at a bandwidth."""
        return self.scale.floor(min(volume / bandwidth, self.longest_s))

    def parts(self, nodes: tuple[list[list[Node]], list[list[Node]]]) -> Iterator[Part]:
        """What takes time beside computing, given the devices of stage replicas and of rings."""
        (at, ring_at), given, replicas = nodes, self.given, self.given.replicas
        for number, (a, b, volume) in enumerate(given.edges):
            yield from (Part("exchange", (number, r), volume, [(at[a][r], at[b][r])]) for r in range(replicas))
        for s in np.nonzero(given.ring > 0)[0].tolist():
            around = [(ring_at[s][i], ring_at[s][(i + 1) % replicas]) for i in range(replicas if replicas > 2 else 1)]
            yield Part("ring", (s,), float(given.ring[s]), around)


class Variables(NamedTuple):
    """The model, the devices of stage replicas and of rings' positions, and the time of each `Part`."""

    model: cpsat.SpokenModel
    at: list[list[Node]]
    ring_at: list[list[Node]]
    takes: dict[tuple[Any, ...], Any]


def data_of(instance: DeviceMapping, watch: Watch, *, complete: bool) -> Data:
    """The instance; plans that are slower than the watch's best one are left out, unless ``complete``."""
    given = arrays(instance, numbered=complete)
    most_s, longest_s, _ = ceiling(instance, watch, complete=complete)
    speeds = given.levels if given.num_devices > 1 else np.ones(1)
    least_s, top_s = (
        max(
            float(given.compute[s])
            + min(float(given.ring[s]) / speed, longest_s)
            + sum(min(volume / speed, longest_s) for _, volume in given.incident[s])
            for s in range(given.num_stages)
        )
        for speed in (float(speeds[0]), float(speeds[-1]))
    )
    scale = cost_scale(least_s, 2 + max(map(len, given.incident)), top_s)
    is_exact = len(given.levels) <= FEW_LEVELS
    rounded = given if is_exact else round_up_speeds(given)
    classes = rounded.levels
    reached = [[np.nonzero(near)[0].tolist() for near in rounded.speed >= speed] for speed in classes[:-1]]
    known = None if most_s is None else watch.best_objective
    top = scale.ceil(top_s if known is None else min(top_s, known))
    return Data(given, scale, classes, reached, is_exact, top, longest_s, *device_order(given, watch.best_plan))


def build(data: Data, watch: Watch) -> Variables:
    """The model; `formulations.modelling.solve_model.Stopped` once the watch is."""
    given, model = data.given, cpsat.SpokenModel()
    stages, slots, devices = range(given.num_stages), range(given.replicas), range(given.num_devices)

    def nodes(name: str) -> list[list[Node]]:
        return [[[model.new_bool_var(f"{name}[{s},{r},{d}]") for d in devices] for r in slots] for s in stages]

    model.says("at", "at[s,r,d]: replica r of stage s is on device d")
    model.says("one_device", "every stage replica has one device: sum over d of at[s,r,d] = 1")
    model.says("one_node", "every device has one stage replica: sum over s, r of at[s,r,d] = 1")
    at = ring_at = nodes("at")
    for s, r in itertools.product(stages, slots):
        model.add_exactly_one(at[s][r]).with_name(f"one_device[{s},{r}]")
    for d in devices:
        model.add_exactly_one([at[s][r][d] for s in stages for r in slots]).with_name(f"one_node[{d}]")

    model.says("ring_at", "ring_at[s,i,d]: the i-th device of the ring of stage s is d")
    model.says("one_device_of_ring", "every position of a ring has one device: sum over d of ring_at[s,i,d] = 1")
    model.says(
        "ring_of_stage", "a ring goes through the devices of its stage: sum of ring_at[s,i,d] = sum of at[s,r,d]"
    )
    if given.separate_rings:
        ring_at = nodes("ring_at")
        for s, i in itertools.product(stages, slots):
            model.add_exactly_one(ring_at[s][i]).with_name(f"one_device_of_ring[{s},{i}]")
        for s, d in itertools.product(stages, devices):
            passed, here = ([node[d] for node in found[s]] for found in (ring_at, at))
            model.add(_sum(passed) == _sum(here)).with_name(f"ring_of_stage[{s},{d}]")

    model.says("exchange", "exchange[e,r]: time in which replica r sends the tensors of edge e of the stage graph")
    model.says(
        "exchange_time",
        "the tensors of edge (s,s') take their bytes over the bandwidth of the devices: exchange[e,r] >= M(s,s') / "
        "B(p(s),p(s')), by the class that the link reaches, or by where the first one is [Parmesan, Equation 6]",
    )
    model.says("ring", "ring[s]: time of the all-reduce of stage s [Parmesan, Equation 7]")
    model.says(
        "ring_time",
        "the all-reduce takes as long as each link of the ring: ring[s] >= 2 (R - 1) P(s) / (R B), by the class that "
        "all links reach, or by where the link begins [Parmesan, Equation 7]",
    )
    takes = {}
    for part in data.parts((at, ring_at)):
        check_stop(watch)
        name = part.name
        slowest = data.units(part.volume, float(given.levels[-1]))
        found = takes[name, *part.number] = model.new_int_var(0, slowest, part.label(name))
        if data.is_exact:
            row = model.add(found >= _class_time(model, data, part))
            row.with_name(part.label(f"{name}_time"))
            continue
        for number, (one, other) in enumerate(part.links):
            for d in devices:
                cost = [data.units(part.volume, float(given.speed[d, e])) if e != d else 0 for e in devices]
                row = model.add(found >= _weighted(other, cost)).only_enforce_if(one[d])
                row.with_name(part.label(f"{name}_time", number, d))

    model.says("bottleneck", "time of the slowest stage replica, in whole units [Parmesan, Equation 5]")
    model.says(
        "stage_time",
        "the slowest one takes as long as every stage replica: computing, all-reduce, and the tensors that it "
        "exchanges with its neighbours [Parmesan, Equations 5 to 7]",
    )
    bottleneck = model.new_int_var(0, data.top, "bottleneck")
    for s, r in itertools.product(stages, slots):
        spent = [takes["exchange", number, r] for number, _ in given.incident[s]]
        spent += [takes["ring", s]] if ("ring", s) in takes else []
        computing = data.scale.floor(float(given.compute[s]))
        model.add(bottleneck >= computing + _sum(spent)).with_name(f"stage_time[{s},{r}]")
    model.minimize(bottleneck)
    return Variables(model, at, ring_at, takes)


def _class_time(model: cpsat.SpokenModel, data: Data, part: Part) -> Any:
    """What a part takes by the class that its links reach: the fastest class, and more for each one that is missed."""
    model.says("class", "class[part,k]: all links of an exchange or a ring have class k or faster")
    model.says("nested", "what is fast is no slower: class[part,k] <= class[part,k+1]")
    model.says(
        "reaches",
        "with the class, the other end of a link is where such a link leads: at[s,r,d] + class[part,k] <= 1 + sum of "
        "at[s',r,e] over e with B(d,e) >= class k, and the other way round",
    )
    is_fast = [model.new_bool_var(part.label("class", part.name, k)) for k in range(len(data.reached))]
    for k, (faster, slower) in enumerate(itertools.pairwise(is_fast)):
        model.add_implication(faster, slower).with_name(part.label("nested", part.name, k))
    for k, reached in enumerate(data.reached):
        for number, ends in enumerate(part.links):
            for (one, other), (d, there) in itertools.product((ends, ends[::-1]), enumerate(reached)):
                row = model.add_bool_or([is_fast[k].negated(), one[d].negated(), *(other[e] for e in there)])
                row.with_name(part.label("reaches", part.name, k, number, d))
    cost = [data.units(part.volume, float(speed)) for speed in data.classes]
    more = [after - before for before, after in itertools.pairwise(cost)]
    return cost[0] + sum(more) - _weighted(is_fast, more)


def strengthen(found: Variables, data: Data) -> None:
    """Rows that the others imply, as bandwidths rounded up make no link slower; and one of equivalent plans."""
    model, given, at, ring_at = found.model, data.given, found.at, found.ring_at
    model.says("class_time", "a part takes as long as by the class that its links reach, of bandwidths rounded up")
    for part in () if data.is_exact else data.parts((at, ring_at)):
        row = model.add(found.takes[part.name, *part.number] >= _class_time(model, data, part))
        row.with_name(part.label("class_time", part.name))
    model.says("in_turn", "symmetry: replicas are numbered, and rings begin and go on, by the numbers of their devices")
    for number, pair in enumerate(in_turn(given)):
        one, other = ((ring_at if is_ring else at)[s][i] for is_ring, s, i in pair)
        for place, d in enumerate(data.order):
            row = model.add_bool_or([other[d].negated(), *(one[e] for e in data.order[:place])])
            row.with_name(f"in_turn[{number},{d}]")
    model.says("first_in_orbit", "symmetry: the first node is on the first of the devices that the topology exchanges")
    for d, first in enumerate(data.orbit):
        if first != d:
            model.add(at[0][0][d] == 0).with_name(f"first_in_orbit[{d}]")


class Model(cpsat.Runnable, WithoutSizes):
    """The model of ``data``."""

    def __init__(self, found: Variables, data: Data) -> None:
        self.model, self.data, self.at, self.ring_at = found.model, data, found.at, found.ring_at

    def decode(self, values: Any) -> Plan:
        """The plan of a solution."""

        def read(nodes: Sequence[Sequence[Node]]) -> list[list[int]]:
            return [[next(d for d, one in enumerate(node) if values[one]) for node in row] for row in nodes]

        given, rows = self.data.given, read(self.at)
        if given.separate_rings:
            passed = read(self.ring_at)
            return plan_of(rows, [[row.index(d) for d in ring] for row, ring in zip(rows, passed, strict=True)])
        is_free = given.instance.ring == "free" and given.has_rings
        return plan_of(rows, [list(range(given.replicas))] * len(rows) if is_free else None)

    def values_of(self, plan: Plan) -> Iterator[tuple[Any, int]]:
        """Where the replicas are in a plan that is equivalent, and its rings."""
        plan = canonical(self.data.given, plan)
        for row, devices in zip(self.at, plan.devices, strict=True):
            for node, device in zip(row, devices, strict=True):
                yield from ((one, int(d == device)) for d, one in enumerate(node))
        if self.ring_at is self.at or plan.rings is None:
            return
        for s, ring in enumerate(plan.rings):
            for node, replica in zip(self.ring_at[s], ring, strict=True):
                yield from ((one, int(d == plan.devices[s][replica])) for d, one in enumerate(node))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a mapping, as sums over what is where."""
        at = self.at
        return {
            "device_of": lambda stage, replica: sum(d * one for d, one in enumerate(at[stage][replica])),
            "on": lambda stage, replica, device: at[stage][replica][device],
            "runs": lambda device, stage: sum(node[device] for node in at[stage]),
            "stage_of": lambda device: sum(s * node[device] for s, row in enumerate(at) for node in row),
        }

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.data.scale.restore(max(0, cpsat.whole(bound))) * (1 - 1e-14)


def model_of(instance: DeviceMapping, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `Stopped` once the watch is."""
    watch = watch or Watch()
    data = data_of(instance, watch, complete=complete)
    found = build(data, watch)
    strengthen(found, data)
    return add_requirements(Model(found, data), VOCABULARY, instance)


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Plan]:
    """The best plan and the bound of the model, from a first plan on (`first_plan`)."""
    return prove(
        instance,
        lambda: model_of(instance, watch),
        evaluate,
        violations,
        limits,
        watch,
        reason="no mapping meets the requirements",
        to_scale=True,
        first=first_plan(instance, limits),
    )
