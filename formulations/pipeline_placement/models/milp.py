"""Both phases as one MILP (Pyomo, HiGHS): where operators go, where stages go, and what then crosses which link.

The partition has the rows of operator partitioning's own MILP. The places of a link's two ends are a flow of one unit
from device to device, as in device mapping's, and the flow says how slow the link is. What crosses a link takes the
time that it has at the fastest bandwidth and, for every slower one that the link does not exceed, the difference: so
no volume is multiplied by a bandwidth that is not known.

Source: the problem is the future work of Parmesan's conclusion; the model is made for this project.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.device_mapping.definition.plan import Mapping as Places
from formulations.modelling.solve_model import add_requirements, check_stop
from formulations.operator_partitioning.models.rows import Rows
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from formulations.pipeline_placement.models.shared import (
    bandwidths,
    first_of_order,
    largest_time,
    ordered_stages,
    solve_with,
)
from instances.problems.pipeline_placement import PlacementInstance
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped, weighted_sum
from solvers.outcome import Limits, Watch


class _Link(NamedTuple):
    """A link from a stage replica to another: of replica ``r``, from stage ``s`` to a later one, or of the ring of s.

    ``last``: the stage at the other end; ``next``: the replica there.
    """

    s: int
    r: int
    last: int
    next: int

    @property
    def is_ring(self) -> bool:
        """Whether it is between replicas of a stage."""
        return self.s == self.last


class Model(milp.Runnable):
    """A placement; ``model`` minimises ``model.slowest``, in units of ``unit`` seconds.

    ``known``: the objective of a known plan, beside which slower ones need not be distinguished (``None``: none).
    ``complete``: nothing is left out, nor numberings of replicas.
    """

    def __init__(self, instance: PlacementInstance, known: float | None, watch: Watch, *, complete: bool) -> None:
        self.instance = instance
        self.partition = Rows(instance.operators, pyo.ConcreteModel())
        self.model = self.partition.model
        #: No stage of interest takes longer, in seconds.
        self.top = largest_time(instance) if known is None else known * (1 + milp.ROOM)
        self.unit = self.top / milp.NATURAL or 1.0
        self.stages, self.replicas = self.partition.stages, range(instance.operators.replicas)
        self.devices, self.levels = range(instance.num_devices), bandwidths(instance)
        self._watch = watch
        tensors = instance.operators.tensors if instance.objective != "allreduce" else ()
        self.sending = {t: tensor.volume_bytes for t, tensor in enumerate(tensors) if tensor.volume_bytes}
        self.links = [*self._links()]
        self.model.slowest = pyo.Var(
            domain=pyo.NonNegativeReals, doc="time of the slowest stage replica [Parmesan, Equation 5]"
        )
        self._places()
        if not complete:
            self._in_order()
        self._flows()
        self._crossings()
        self._link_times()
        self._times()
        self.model.objective = pyo.Objective(expr=self.model.slowest)
        check_stop(watch)

    def _links(self) -> Iterator[_Link]:
        """The links that some volume may cross."""
        for s in self.stages if self.sending else ():
            for q in self.stages[s + 1 :]:
                yield from (_Link(s, r, q, r) for r in self.replicas)
        count, objective = len(self.replicas), self.instance.objective
        if objective == "p2p" or not any(each.parameter_bytes for each in self.instance.operators.operators):
            return
        for s in self.stages if count > 1 else ():
            yield from (_Link(s, r, s, (r + 1) % count) for r in (self.replicas if count > 2 else (0,)))

    def _places(self) -> None:
        model, places = self.model, [(s, r) for s in self.stages for r in self.replicas]
        model.at = pyo.Var(
            places, self.devices, domain=pyo.Binary, doc="at[s,r,d]: replica r of stage s is on device d"
        )
        model.placed = pyo.Constraint(
            places,
            rule=lambda m, s, r: weighted_sum((1.0, m.at[s, r, d]) for d in self.devices) == 1,
            doc="every stage replica has a device: sum over d of at[s,r,d] = 1",
        )
        model.one_node = pyo.Constraint(
            self.devices,
            rule=lambda m, d: weighted_sum((1.0, m.at[s, r, d]) for s, r in places) == 1,
            doc="every device has a stage replica: sum over s, r of at[s,r,d] = 1",
        )

    def _in_order(self) -> None:
        """Numbers of devices rise along replicas that can be numbered otherwise."""

        def in_order(m: Any, s: int, r: int) -> Any:
            before = first_of_order(self.instance, r)
            further = [(float(d), m.at[s, r, d]) for d in self.devices]
            return weighted_sum([*further, *((-float(d), m.at[s, before, d]) for d in self.devices)]) >= 1

        self.model.in_order = pyo.Constraint(
            ordered_stages(self.instance),
            self.replicas[1:],
            rule=in_order,
            doc="replicas that can be numbered otherwise are in the order of their devices: sum over d of d at[s,r,d] "
            ">= 1 + sum over d of d at[s,r-1,d]",
        )

    def _flows(self) -> None:
        """The places of a link's ends, together."""
        model, devices, links = self.model, self.devices, range(len(self.links))
        pairs = [(d, e) for d in devices for e in devices if d != e]
        model.arc = pyo.Var(
            links, pairs, bounds=(0, 1), doc="arc[l,d,e]: link l of two stage replicas runs from device d to device e"
        )

        def begins(m: Any, link: int, d: int) -> Any:
            on = self.links[link]
            return weighted_sum((1.0, m.arc[link, d, e]) for e in devices if e != d) == m.at[on.s, on.r, d]

        def ends(m: Any, link: int, e: int) -> Any:
            on = self.links[link]
            return weighted_sum((1.0, m.arc[link, d, e]) for d in devices if d != e) == m.at[on.last, on.next, e]

        model.begins = pyo.Constraint(
            links,
            devices,
            rule=until_stopped(self._watch, begins),
            doc="a link begins where its first end is: sum over e of arc[l,d,e] = at[s,r,d]",
        )
        model.ends = pyo.Constraint(
            links,
            devices,
            rule=until_stopped(self._watch, ends),
            doc="a link ends where its second end is: sum over d of arc[l,d,e] = at[second end,e]",
        )

    def _crossings(self) -> None:
        """Which tensors go from which stage to which."""
        model, holds, tensors = self.model, self.model.holds, self.instance.operators.tensors
        pairs = [(s, q) for s in self.stages for q in self.stages[s + 1 :]]
        targets = [(t, target) for t in self.sending for target in tensors[t].targets]
        model.crosses = pyo.Var(
            list(self.sending), pairs, bounds=(0, 1), doc="crosses[t,s,q]: tensor t goes from stage s to stage q"
        )

        def from_source(m: Any, t: int, s: int, q: int) -> Any:
            return m.crosses[t, s, q] <= holds[tensors[t].source, s]

        def arrives(m: Any, t: int, target: int, q: int) -> Any:
            into = weighted_sum((1.0, m.crosses[t, s, q]) for s in self.stages[:q])
            return into >= holds[target, q] - holds[tensors[t].source, q]

        def leaves(m: Any, t: int, target: int, s: int) -> Any:
            out = weighted_sum((1.0, m.crosses[t, s, q]) for q in self.stages[s + 1 :])
            return out >= holds[tensors[t].source, s] - holds[target, s]

        model.from_source = pyo.Constraint(
            list(self.sending),
            pairs,
            rule=until_stopped(self._watch, from_source),
            doc="a tensor goes out from the stage of its source: crosses[t,s,q] <= holds[source,s]",
        )
        model.arrives = pyo.Constraint(
            targets,
            self.stages[1:],
            rule=until_stopped(self._watch, arrives),
            doc="a stage that runs a target of a tensor, and not its source, receives it: sum over s of crosses[t,s,q] "
            ">= holds[target,q] - holds[source,q] [Parmesan, Equation 3]",
        )
        model.leaves = pyo.Constraint(
            targets,
            self.stages[:-1],
            rule=until_stopped(self._watch, leaves),
            doc="a stage that runs its source, and not a target, sends it (implied for whole values): sum over q of "
            "crosses[t,s,q] >= holds[source,s] - holds[target,s]",
        )

    def _volumes(self, on: _Link) -> list[tuple[float, Any]]:
        """Bytes that may cross a link, each with the variable that says so."""
        if not on.is_ring:
            return [(volume, self.model.crosses[t, on.s, on.last]) for t, volume in self.sending.items()]
        count, operators = len(self.replicas), self.instance.operators.operators
        factor = 2 * (count - 1) / count
        return [
            (factor * each.parameter_bytes, self.model.holds[v, on.s])
            for v, each in enumerate(operators)
            if each.parameter_bytes
        ]

    def _seconds(self, volumes: list[tuple[float, Any]], per_byte: float) -> list[tuple[float, Any]]:
        """Volumes as time in units; what takes far longer than any stage of interest takes twice as long as that."""
        return [(milp.in_units(min(each * per_byte, 2 * self.top), self.unit), variable) for each, variable in volumes]

    def _link_times(self) -> None:
        model, links, levels = self.model, range(len(self.links)), self.levels
        differences = {k: 1 / slow - 1 / fast for k, (fast, slow) in enumerate(pairwise(levels), start=1)}
        matrix, devices = self.instance.bandwidth_bytes_per_s, self.devices
        slow_pairs = {
            k: [(d, e) for d in devices for e in devices if d != e and matrix[d][e] <= levels[k]] for k in differences
        }
        model.extra = pyo.Var(
            links,
            list(differences),
            domain=pyo.NonNegativeReals,
            doc="extra[l,k]: time that link l takes longer at level k of the distinct bandwidths, fastest first, than "
            "at the level before; 0 if it is faster",
        )

        def extra_time(m: Any, link: int, k: int) -> Any:
            seconds = self._seconds(self._volumes(self.links[link]), differences[k])
            # At the fastest bandwidth what crosses takes no longer than `top`.
            most = min(sum(each for each, _ in seconds), differences[k] * self.top * levels[0] / self.unit)
            is_slow = weighted_sum((1.0, m.arc[link, d, e]) for d, e in slow_pairs[k])
            return m.extra[link, k] >= weighted_sum(seconds) - most * (1 - is_slow)

        model.extra_time = pyo.Constraint(
            links,
            list(differences),
            rule=until_stopped(self._watch, extra_time),
            doc="a link that is no faster than level k takes the difference to the level before for all that crosses "
            "it; big-M: all volumes, or what the fastest link carries in the time of a known plan [Parmesan, Equations "
            "6 and 7]",
        )

    def _times(self) -> None:
        """The slowest replica is at least as slow as every one."""
        model, operators = self.model, self.instance.operators.operators
        rings = [link for link, on in enumerate(self.links) if on.is_ring]
        reduced = sorted({self.links[link].s for link in rings})
        model.allreduce = pyo.Var(
            reduced, domain=pyo.NonNegativeReals, doc="allreduce[s]: time of the all-reduce of stage s"
        )

        def time_on(m: Any, link: int) -> Any:
            fastest = self._seconds(self._volumes(self.links[link]), 1 / self.levels[0])
            extra = [(1.0, m.extra[link, k]) for k in range(1, len(self.levels))]
            return [*fastest, *extra]

        def slowest_link(m: Any, link: int) -> Any:
            return m.allreduce[self.links[link].s] >= weighted_sum(time_on(m, link))

        model.slowest_link = pyo.Constraint(
            rings,
            rule=until_stopped(self._watch, slowest_link),
            doc="the slowest link of a ring decides [Parmesan, Equation 7]",
        )
        of_replica: dict[tuple[int, int], list[int]] = {}
        for link, on in enumerate(self.links):
            for end in () if on.is_ring else ((on.s, on.r), (on.last, on.next)):
                of_replica.setdefault(end, []).append(link)

        def stage_time(m: Any, s: int, r: int) -> Any:
            computes = [(milp.in_units(each.compute_s, self.unit), m.holds[v, s]) for v, each in enumerate(operators)]
            exchanged = [term for link in of_replica.get((s, r), ()) for term in time_on(m, link)]
            reducing = [(1.0, m.allreduce[s])] if s in reduced else []
            return m.slowest >= weighted_sum([*computes, *exchanged, *reducing])

        model.stage_time = pyo.Constraint(
            self.stages,
            self.replicas,
            rule=until_stopped(self._watch, stage_time),
            doc="the slowest one takes as long as every stage replica: it computes, exchanges tensors and reduces its "
            "gradients [Parmesan, Equations 5 to 7]",
        )

    def decode(self, values: Any) -> PlacementPlan:
        """The plan that the values of a solution describe."""

        def device(s: int, r: int) -> int:
            return max(self.devices, key=lambda d: values[self.model.at[s, r, d]])

        places = tuple(tuple(device(s, r) for r in self.replicas) for s in self.stages)
        return PlacementPlan(self.partition.decode(values), Places(places))

    def values_of(self, plan: PlacementPlan) -> Iterator[tuple[Any, int]]:
        """The values of the partition and of all places in a plan."""
        yield from self.partition.values_of(plan.partition)
        for (s, r, d), variable in self.model.at.items():
            yield variable, int(plan.mapping.devices[s][r] == d)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a placement, as sums over both phases."""
        at, partition = self.model.at, self.partition.quantities()
        places = [(s, r) for s in self.stages for r in self.replicas]
        return {
            "stage_of": partition["stage_of"],
            "same_stage": partition["same_stage"],
            "runs": lambda device, stage: weighted_sum((1.0, at[stage, r, device]) for r in self.replicas),
            "stage_on": lambda device: weighted_sum((float(s), at[s, r, device]) for s, r in places),
        }

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=True) * self.unit

    def cut_off(self, plan: PlacementPlan, values: Any) -> None:
        """Not this partition, of which only rounded sizes fit."""
        self.partition.cut_off(plan.partition, values)


def build(instance: PlacementInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model. Raises `formulations.modelling.solve_model.Stopped` once the watch is.

    Times beyond that of the best plan that the watch knows are not distinguished, unless ``complete``; nor, then, are
    plans that number the replicas of a stage otherwise, which no requirement distinguishes.
    """
    watch = watch or Watch()
    built = Model(instance, None if complete else watch.best_objective, watch, complete=complete)
    add_requirements(built, VOCABULARY, instance)
    return built


def solve(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """The best plan of both phases at once, by HiGHS (`models.solve_with`)."""
    return solve_with(lambda: build(instance, watch), instance, limits, watch, to_scale=True)
