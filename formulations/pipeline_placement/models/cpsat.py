"""Both phases as one CP-SAT model: where operators go, where stages go, and what then crosses which link.

The partition has the rows of operator partitioning's own model. A link has a level for every distinct bandwidth; a
literal says that the link of a pair of stage replicas is no faster than level k, and then the seconds of what the pair
exchanges are at least those at that level. So no volume is ever multiplied by a bandwidth that is not known.

Source: the problem is the future work of Parmesan's conclusion; the model is made for this project.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.operator_partitioning.models.cpsat import UNRELAXED, Partition, add_feeds, add_partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from formulations.pipeline_placement.models.placement_data import Data, Link, data_of
from formulations.pipeline_placement.models.shared import Placement, solve_with
from formulations.pipeline_placement.models.two_phase import compute_bound
from instances.problems.pipeline_placement import PlacementInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale

#: Relative room for rounding where what is slower than a known plan is left out.
_MARGIN = 1e-9


def scale_of(data: Data) -> Scale:
    """Whole units of time: every variable of seconds and every term of a sum may be as large as what is minimised."""
    graph, stages = data.instance.operators, data.instance.num_stages
    terms = len(graph.operators) + 2 * len(graph.tensors) * stages
    largest = data.top_s * (terms + 2 * data.instance.num_devices * (stages + 2))
    if data.instance.objective == "step":  # a stage's time counts for each micro-batch and on a path
        terms, largest = (
            terms * (stages + data.instance.microbatches),
            largest + data.top_s * data.instance.microbatches,
        )
    return cost_scale(compute_bound(data.instance), 2 * terms, largest)


def build(data: Data) -> cpsat.SpokenModel:
    """The model of all plans that take no longer than ``data.top_s``."""
    stages, replicas, devices, tensors = data.stages, data.replicas, data.devices, data.instance.operators.tensors
    places, scale, model = list(product(stages, replicas)), scale_of(data), cpsat.SpokenModel()
    most = scale.ceil(data.top_s)
    add_partition(model, data.partition)
    holds = model.variables["holds"]

    # fmt: off
    at = model.booleans("at", [(s, r, d) for s, r in places for d in devices],
        "at[s,r,d]: replica r of stage s is on device d")

    def number(s: int, r: int) -> Any:  # of the device that replica r of stage s is on
        return cpsat.weighted_sum((d, at[s, r, d]) for d in devices)

    model.rows("placed", places, lambda s, r: model.add_exactly_one([at[s, r, d] for d in devices]),
        "every stage replica has a device: sum over d of at[s,r,d] = 1")
    model.rows("one_node", devices, lambda d: model.add_exactly_one([at[s, r, d] for s, r in places]),
        "every device has a stage replica: sum over s, r of at[s,r,d] = 1")
    model.rows("in_order", data.earlier, lambda s, r: number(s, data.earlier[s, r]) + 1 <= number(s, r),
        "replicas that can be numbered otherwise are in the order of their devices")

    crosses = model.booleans("crosses", [(t, s, q) for t in data.volumes for s, q in combinations(stages, 2)],
        "crosses[t,s,q]: tensor t goes from stage s to stage q")
    model.rows("crossing", [(t, v, s, q) for t, s, q in crosses for v in tensors[t].targets],
        lambda t, v, s, q: model.add_bool_or([crosses[t, s, q], ~holds[tensors[t].source, s], ~holds[v, q]]),
        "it does if its source is in the first and one of its targets in the second")
    sent = model.integers("sent", data.sent, 0, most + 1,
        "sent[s,q,r]: time in which replica r sends from stage s to stage q")
    add_link_times(model, data, scale, "sent", "what is sent", data.sent,
        lambda link: [(volume, crosses[t, link.s, link.q]) for t, volume in data.volumes.items()])
    ring = model.integers("ring", data.rings, 0, most + 1,
        "ring[s,r]: time of the all-reduce on the link of replica r to the next one")
    add_link_times(model, data, scale, "ring", "the all-reduce", data.rings,
        lambda link: [(volume, holds[v, link.s]) for v, volume in data.gradients.items()])
    allreduce = model.integers("allreduce", [s for s, r in ring if r == 0], 0, most + 1,
        "allreduce[s]: time of the all-reduce of stage s")
    model.rows("slowest_link", ring, lambda s, r: allreduce[s] >= ring[s, r],
        "the slowest link of a ring decides: allreduce[s] >= ring[s,r] [Parmesan, Equation 7]")

    compute = [scale.floor(each.compute_s) for each in data.instance.operators.operators]

    # fmt: on
    def time(s: int, r: int) -> Any:
        computing = cpsat.weighted_sum((min(each, most + 1), holds[v, s]) for v, each in enumerate(compute))
        return sum([computing, *(each for (one, other, of), each in sent.items() if of == r and s in (one, other))])

    times = {(s, r): time(s, r) for s, r in places}
    if data.instance.objective == "step":
        add_step(model, data, most, times, allreduce)
        return model
    slowest = model.integer(
        "slowest", 0, most, "time of the slowest stage replica, in whole units [Parmesan, Equation 5]"
    )
    model.rows(
        "stage_time",
        places,
        lambda s, r: times[s, r] + allreduce.get(s, 0) <= slowest,
        "the slowest one takes as long as every stage replica: it computes, exchanges tensors and reduces its "
        "gradients [Parmesan, Equations 6 and 7]",
    )
    model.minimize(slowest)
    return model


def add_step(
    model: cpsat.SpokenModel, data: Data, most: int, times: Mapping[tuple[int, int], Any], allreduce: Mapping[int, Any]
) -> None:
    """The objective of a flushed pipeline (`definition.problem.step_parts`), of the times of stage replicas."""
    others, feeds = data.instance.microbatches - 1, add_feeds(model, data.partition, model.variables["holds"])

    # fmt: off
    lasts = model.integers("lasts", times, 0, most,
        "lasts[s,r]: time of a micro-batch on replica r of stage s")
    # An equation, though a bound would do: operator partitioning's own model says why.
    model.rows("stage_lasts", times, lambda s, r: lasts[s, r] == times[s, r],
        "a stage replica computes and exchanges tensors [Parmesan, Equation 6]")
    path = model.integers("path", times, 0, most,
        "path[s,r]: time of the heaviest path of stages that ends with stage s, of replica r")
    model.rows("path_begins", path, lambda s, r: path[s, r] >= lasts[s, r], "a path may begin with any stage")
    model.rows("path_goes_on", [(s, q, r) for s, q in feeds for r in data.replicas],
        lambda s, q, r: (path[q, r] >= path[s, r] + lasts[q, r], feeds[s, q]),
        "it goes on to each stage that is fed")
    slowest = model.integers("slowest", data.replicas, 0, most,
        "slowest[r]: time of a micro-batch in the slowest stage of replica r")
    model.rows("stage_time", times, lambda s, r: slowest[r] >= lasts[s, r], "no stage of a replica is slower")
    pipeline = model.integer("pipeline", 0, most,
        "time of the slowest replica's pipeline")
    model.rows("pipeline_time", path, lambda s, r: pipeline >= path[s, r] + others * slowest[r],
        "the first micro-batch passes the heaviest path of stages, all others follow in the slowest one")
    reduced = model.integer("reduced", 0, most + 1, "time of the longest all-reduce")
    model.rows("all_reduce", allreduce, lambda s: reduced >= allreduce[s],
        "gradients are summed at last, in all stages at once")
    # fmt: on
    model.minimize(pipeline + reduced)


def add_link_times(
    model: cpsat.SpokenModel,
    data: Data,
    scale: Scale,
    name: str,
    what: str,
    links: Mapping[tuple[int, ...], Link],
    crossing: Callable[[Link], list[tuple[float, Any]]],
) -> None:
    """Seconds of what crosses links, at least; beyond ``data.top_s`` no more needs to be known, and sums stay small."""
    levels, most = range(len(data.levels)), scale.ceil(data.top_s) + 1
    at, takes = model.variables["at"], model.variables[name]

    # fmt: off
    slow = model.booleans(f"{name}_slow", [(*on, k) for on in links for k in levels[1:]],
        f"{name}_slow[.,k]: the link is no faster than level k of the distinct bandwidths, fastest first")

    def time(*index: int) -> Any:
        *on, k = index
        volumes = crossing(links[tuple(on)])
        units = [(min(scale.floor(volume / data.levels[k]), most), variable) for volume, variable in volumes]
        row = takes[tuple(on)] >= cpsat.weighted_sum(units)
        return (row, slow[index]) if k else row

    def level(*index: int) -> Any:
        *on, d, e = index
        s, r, q, i = links[tuple(on)]
        return model.add_bool_or([slow[*on, data.level[d, e]], ~at[s, r, d], ~at[q, i, e]])

    model.rows(f"{name}_time", [(*on, k) for on in links for k in levels], time,
        f"{what} takes as long as at level k if the link is no faster [Parmesan, Equations 6 and 7]")
    model.rows(f"{name}_levels", [index for index in slow if index[-1] > 1],
        lambda *index: model.add_implication(slow[index], slow[*index[:-1], index[-1] - 1]),
        "a link that is no faster than a level is no faster than the levels before")
    model.rows(f"{name}_level", [(*on, *pair) for on in links for pair, k in data.level.items() if k], level,
        "a link is as slow as the devices that its ends are on have it")
    # fmt: on


@dataclass
class Model(Placement, cpsat.Runnable):
    """The model of ``data``, whose times are in units of ``scale``."""

    model: cpsat.SpokenModel
    data: Data
    scale: Scale

    @property
    def partition(self) -> Partition:
        """The partition in the same model."""
        return Partition(self.model, self.data.partition)

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return max(0.0, self.scale.restore(cpsat.whole(bound)) * (1 - 1e-14))


class StepModel(Model):
    """The same of a flushed pipeline."""

    parameters = UNRELAXED


def model_of(instance: PlacementInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `solvers.build_stop.Stopped` once the watch is."""
    with stops_with(watch or Watch()):
        data = data_of(instance, watch, _MARGIN, complete=complete)
        kind = StepModel if instance.objective == "step" else Model
        return add_requirements(kind(build(data), data, scale_of(data)), VOCABULARY, instance)


def solve(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """The best plan of both phases at once, by CP-SAT (`models.solve_with`)."""
    return solve_with(lambda: model_of(instance, watch), instance, limits, watch, to_scale=bool(instance.requirements))
