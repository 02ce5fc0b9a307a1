"""Both phases as one MILP (Pyomo, HiGHS): where operators go, where stages go, and what then crosses which link.

The partition has the rows of operator partitioning's own MILP. The places of a link's two ends are a flow of one unit
from device to device, as in device mapping's, and the flow says how slow the link is. What crosses a link takes the
time that it has at the fastest bandwidth and, for every slower one that the link does not exceed, the difference: so
no volume is multiplied by a bandwidth that is not known.

Source: the problem is the future work of Parmesan's conclusion; the model is made for this project.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.operator_partitioning.models.milp import Partition, add_feeds, add_partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from formulations.pipeline_placement.models.placement_data import Data, Link, data_of
from formulations.pipeline_placement.models.shared import Placement, solve_with
from instances.problems.pipeline_placement import PlacementInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.milp.backend import in_units, weighted_sum
from solvers.outcome import Limits, Watch


def unit_of_time(data: Data) -> float:
    """The model's unit of time, in seconds."""
    return data.top_s / milp.NATURAL or 1.0


def longer(data: Data) -> dict[int, float]:
    """By level k >= 1, the seconds that a byte takes longer than at the level before."""
    return {k: 1 / slow - 1 / fast for k, (fast, slow) in enumerate(pairwise(data.levels), start=1)}


def crossing(model: Any, data: Data, link: Link, s_per_byte: float) -> list[tuple[float, Any]]:
    """What crosses a link, in units; what takes far longer than any stage of interest takes twice as long."""
    unit = unit_of_time(data)
    volumes = [(each, model.holds[v, link.s]) for v, each in data.gradients.items()] if link.is_ring else [
        (each, model.crosses[t, link.s, link.q]) for t, each in data.volumes.items()]  # fmt: skip
    return [(in_units(min(each * s_per_byte, 2 * data.top_s), unit), variable) for each, variable in volumes]


def add_places(model: pyo.ConcreteModel, data: Data) -> None:
    """The devices of all stage replicas, and of the two ends of each link."""
    stages, replicas, devices, links = data.stages, data.replicas, data.devices, data.links
    places = list(product(stages, replicas))

    def in_order(m: Any, s: int, r: int) -> Any:
        here, before = ([(float(d), m.at[s, i, d]) for d in devices] for i in (r, data.earlier[s, r]))
        return weighted_sum([*here, *((-d, at) for d, at in before)]) >= 1

    def begins(m: Any, n: int, d: int) -> Any:
        return weighted_sum((1.0, m.arc[n, d, e]) for e in devices if e != d) == m.at[links[n].s, links[n].r, d]

    def ends(m: Any, n: int, e: int) -> Any:
        return weighted_sum((1.0, m.arc[n, d, e]) for d in devices if d != e) == m.at[links[n].q, links[n].i, e]

    # fmt: off
    model.at = pyo.Var(places, devices, domain=pyo.Binary, doc="at[s,r,d]: replica r of stage s is on device d")
    model.placed = pyo.Constraint(
        places, rule=lambda m, s, r: weighted_sum((1.0, m.at[s, r, d]) for d in devices) == 1, doc=
        "every stage replica has a device: sum over d of at[s,r,d] = 1")
    model.one_node = pyo.Constraint(
        devices, rule=lambda m, d: weighted_sum((1.0, m.at[s, r, d]) for s, r in places) == 1, doc=
        "every device has a stage replica: sum over s, r of at[s,r,d] = 1")
    model.in_order = pyo.Constraint(
        list(data.earlier), rule=in_order, doc=
        "replicas that can be numbered otherwise are in the order of their devices: sum over d of d at[s,r,d] >= 1 + "
        "sum over d of d at[s,r-1,d]")
    model.arc = pyo.Var(range(len(links)), list(permutations(devices, 2)), bounds=(0, 1), doc=
        "arc[l,d,e]: link l of two stage replicas runs from device d to device e")
    model.begins = pyo.Constraint(range(len(links)), devices, rule=begins, doc=
        "a link begins where its first end is: sum over e of arc[l,d,e] = at[s,r,d]")
    model.ends = pyo.Constraint(range(len(links)), devices, rule=ends, doc=
        "a link ends where its second end is: sum over d of arc[l,d,e] = at[second end,e]")
    # fmt: on


def build(data: Data) -> pyo.ConcreteModel:
    """The model; times beyond ``data.top_s`` are not distinguished."""
    stages, replicas, links, tensors = data.stages, data.replicas, data.links, data.instance.operators.tensors
    operators, targets = data.instance.operators.operators, [(t, v) for t in data.volumes for v in tensors[t].targets]
    rings, further, unit = [n for n, link in enumerate(links) if link.is_ring], longer(data), unit_of_time(data)
    model = pyo.ConcreteModel()

    def arrives(m: Any, t: int, target: int, q: int) -> Any:
        into = weighted_sum((1.0, m.crosses[t, s, q]) for s in stages[:q])
        return into >= m.holds[target, q] - m.holds[tensors[t].source, q]

    def leaves(m: Any, t: int, target: int, s: int) -> Any:
        out = weighted_sum((1.0, m.crosses[t, s, q]) for q in stages[s + 1 :])
        return out >= m.holds[tensors[t].source, s] - m.holds[target, s]

    def extra_time(m: Any, n: int, k: int) -> Any:
        seconds = crossing(m, data, links[n], further[k])
        # At the fastest bandwidth what crosses takes no longer than `top_s`.
        most = min(sum(each for each, _ in seconds), further[k] * data.top_s * data.levels[0] / unit)
        is_slow = weighted_sum((1.0, m.arc[n, d, e]) for (d, e), level in data.level.items() if level >= k)
        return m.extra[n, k] >= weighted_sum(seconds) - most * (1 - is_slow)

    def time_on(m: Any, n: int) -> list[tuple[float, Any]]:
        return [*crossing(m, data, links[n], 1 / data.levels[0]), *((1.0, m.extra[n, k]) for k in further)]

    def time(m: Any, s: int, r: int) -> list[tuple[float, Any]]:
        computes = [(in_units(each.compute_s, unit), m.holds[v, s]) for v, each in enumerate(operators)]
        own = [n for n, link in enumerate(links) if (s, r) in link.ends and not link.is_ring]
        return [*computes, *(term for n in own for term in time_on(m, n))]

    def stage_time(m: Any, s: int, r: int) -> Any:
        reducing = [(1.0, m.allreduce[s])] if s in m.allreduce else []
        return m.slowest >= weighted_sum([*time(m, s, r), *reducing])

    # fmt: off
    add_partition(model, data.partition)
    add_places(model, data)
    model.crosses = pyo.Var(list(data.volumes), list(combinations(stages, 2)), bounds=(0, 1), doc=
        "crosses[t,s,q]: tensor t goes from stage s to stage q")
    model.from_source = pyo.Constraint(
        model.crosses.index_set(), rule=lambda m, t, s, q: m.crosses[t, s, q] <= m.holds[tensors[t].source, s], doc=
        "a tensor goes out from the stage of its source: crosses[t,s,q] <= holds[source,s]")
    model.arrives = pyo.Constraint(targets, stages[1:], rule=arrives, doc=
        "a stage that runs a target of a tensor, and not its source, receives it: sum over s of crosses[t,s,q] >= "
        "holds[target,q] - holds[source,q] [Parmesan, Equation 3]")
    model.leaves = pyo.Constraint(targets, stages[:-1], rule=leaves, doc=
        "a stage that runs its source, and not a target, sends it (implied for whole values): sum over q of "
        "crosses[t,s,q] >= holds[source,s] - holds[target,s]")
    model.extra = pyo.Var(range(len(links)), list(further), domain=pyo.NonNegativeReals, doc=
        "extra[l,k]: time that link l takes longer at level k of the distinct bandwidths, fastest first, than at the "
        "level before; 0 if it is faster")
    model.extra_time = pyo.Constraint(range(len(links)), list(further), rule=extra_time, doc=
        "a link that is no faster than level k takes the difference to the level before for all that crosses it; "
        "big-M: all volumes, or what the fastest link carries in the time of a known plan "
        "[Parmesan, Equations 6 and 7]")
    model.allreduce = pyo.Var(sorted({links[n].s for n in rings}), domain=pyo.NonNegativeReals, doc=
        "allreduce[s]: time of the all-reduce of stage s")
    model.slowest_link = pyo.Constraint(
        rings, rule=lambda m, n: m.allreduce[links[n].s] >= weighted_sum(time_on(m, n)), doc=
        "the slowest link of a ring decides [Parmesan, Equation 7]")
    if data.instance.objective == "step":
        add_step(model, data, time)
        return model
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals, doc=
        "time of the slowest stage replica [Parmesan, Equation 5]")
    model.stage_time = pyo.Constraint(stages, replicas, rule=stage_time, doc=
        "the slowest one takes as long as every stage replica: it computes, exchanges tensors and reduces its "
        "gradients [Parmesan, Equations 5 to 7]")
    # fmt: on
    model.objective = pyo.Objective(expr=model.slowest)
    return model


def add_step(model: pyo.ConcreteModel, data: Data, time: Callable[[Any, int, int], list[tuple[float, Any]]]) -> None:
    """The objective of a flushed pipeline (`definition.problem.step_parts`), of the times of stage replicas."""
    stages, replicas, others = data.stages, data.replicas, data.instance.microbatches - 1
    top, pairs = data.top_s / unit_of_time(data), add_feeds(model, data.partition)

    def slowest(m: Any, s: int, r: int) -> Any:
        return m.others[r] >= weighted_sum((others * each, variable) for each, variable in time(m, s, r))

    # fmt: off
    model.lasts = pyo.Var(stages, replicas, domain=pyo.NonNegativeReals, doc=
        "lasts[s,r]: time of a micro-batch on replica r of stage s")
    model.stage_lasts = pyo.Constraint(
        stages, replicas, rule=lambda m, s, r: m.lasts[s, r] >= weighted_sum(time(m, s, r)), doc=
        "a stage replica computes and exchanges tensors [Parmesan, Equation 6]")
    model.path = pyo.Var(stages, replicas, domain=pyo.NonNegativeReals, doc=
        "path[s,r]: time of the heaviest path of stages that ends with stage s, of replica r")
    model.path_begins = pyo.Constraint(
        stages, replicas, rule=lambda m, s, r: m.path[s, r] >= m.lasts[s, r], doc="a path may begin with any stage")
    model.path_goes_on = pyo.Constraint(
        pairs, replicas,
        rule=lambda m, s, q, r: m.path[q, r] >= m.path[s, r] + m.lasts[q, r] - top * (1 - m.feeds[s, q]), doc=
        "it goes on to each stage that is fed; big-M: the longest path of interest")
    model.others = pyo.Var(replicas, domain=pyo.NonNegativeReals, doc=
        "others[r]: time of all micro-batches of replica r but the first, in its slowest stage")
    model.stage_time = pyo.Constraint(stages, replicas, rule=slowest, doc="no stage of a replica is slower")
    model.pipeline = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the slowest replica's pipeline")
    model.pipeline_time = pyo.Constraint(
        stages, replicas, rule=lambda m, s, r: m.pipeline >= m.path[s, r] + m.others[r], doc=
        "the first micro-batch passes the heaviest path of stages, all others follow in the slowest one")
    model.reduced = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the longest all-reduce")
    model.all_reduce = pyo.Constraint(
        list(model.allreduce), rule=lambda m, s: m.reduced >= m.allreduce[s], doc=
        "gradients are summed at last, in all stages at once")
    # fmt: on
    model.objective = pyo.Objective(expr=model.pipeline + model.reduced)


@dataclass
class Model(Placement, milp.Runnable):
    """The model of ``data``, in units of ``unit`` seconds."""

    model: Any
    data: Data
    unit: float

    @property
    def partition(self) -> Partition:
        """The partition in the same model."""
        return Partition(self.model, self.data.partition)

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.proved_bound(bound, to_scale=True) * self.unit


def model_of(instance: PlacementInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `solvers.build_stop.Stopped` once the watch is."""
    with stops_with(watch or Watch()):
        data = data_of(instance, watch, milp.ROOM, complete=complete)
        return add_requirements(Model(build(data), data, unit_of_time(data)), VOCABULARY, instance)


def solve(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """The best plan of both phases at once, by HiGHS (`models.solve_with`)."""
    return solve_with(lambda: model_of(instance, watch), instance, limits, watch, to_scale=True)
