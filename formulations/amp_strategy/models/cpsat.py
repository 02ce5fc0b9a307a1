"""Training strategies for CP-SAT: degrees, micro-batch, placement class and cuts in one model.

A candidate c is a choice of degrees and micro-batch with a class of placements (`candidates`); stages are cut as in
formulations/layer_assignment/models/cpsat.py, as many of them as the candidate has. No row has a big-M: what holds at
one candidate is enforced by its literal.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.definition.quantities import DEGREES, VOCABULARY
from formulations.amp_strategy.models.candidates import Candidate, choice, infeasible_answer
from formulations.amp_strategy.models.first_plan import first_plan
from formulations.contract.family import Answer
from formulations.layer_assignment.costs import balance_factor
from formulations.modelling.solve_model import WithoutSizes, add_requirements, prove
from instances.problems.amp_strategy import AmpInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale


@dataclass(frozen=True)
class Data:
    """The candidates in whole units of ``scale``, rounded down; what costs more than a known strategy costs as much.

    Of candidate c ``filling[c]`` are all layers where they take least, ``waiting[c][j][l]`` is (gas - 1) t_l in stage
    j, ``extra[c][j][l]`` what t_l is more there than the least (empty if it is the same in all stages),
    ``cuts[c][j][l]`` e of the cut before layer l if stage j begins there, ``rings[c][j][l]`` what layer l adds to the
    all-reduce of stage j (empty without one), ``tied_rings[c][j][i]`` what the parameters add that the layers
    ``tied[i]`` share, and ``most_all_reduce[c]`` exceeds it all.
    """

    candidates: list[Candidate]
    filling: list[int]
    waiting: list[list[list[int]]]
    extra: list[list[list[int]]]
    cuts: list[list[list[int]]]
    rings: list[list[list[int]]]
    tied: list[tuple[int, ...]]
    tied_rings: list[list[list[int]]]
    most_all_reduce: list[int]
    num_layers: int
    scale: Scale


def data_of(instance: AmpInstance, watch: Watch, *, complete: bool) -> Data:
    """The instance in whole units, with all candidates that may be better than the watch's best plan (`choice`)."""
    found, _, most_s, quick_s = choice(instance, watch, complete=complete)
    layers, stages = len(instance.layers), max((each.degrees.pp_degree for each in found), default=1)
    tied = found[0].priced.tied if found else ()
    syncing = [_most_syncing(each, most_s) for each in found]
    largest = (
        max((each.weight + 1) * (each.filling + float(each.table.extra[:, -1].sum())) for each in found)
        + max(min(most_s, float(each.table.cut.max())) for each in found) * stages
        + max(syncing)
        if found
        else 0.0
    )
    # No strategy is better than the best balanced assignment by more than this factor.
    factor = max((balance_factor(each.priced) for each in found), default=1)
    scale = cost_scale(quick_s / factor, 3 * layers + stages + len(tied) + 4, largest)

    def units(seconds: float) -> int:
        return scale.floor(min(seconds, most_s))

    def rings(each: Candidate, sizes: Sequence[float]) -> list[list[int]]:
        rings = [each.priced.ring(j) for j in range(each.degrees.pp_degree)] if each.priced.ring_s_per_parameter else []
        return [[units(ring * size) for size in sizes] for ring in rings]

    return Data(
        found,
        [scale.floor(each.filling) for each in found],
        [
            [[scale.floor(each.weight * time) for time in each.priced.times(j)] for j in range(each.degrees.pp_degree)]
            for each in found
        ],
        [
            [
                [scale.floor(t - s) for t, s in zip(own, each.priced.least_time_s, strict=True)]
                for own in each.priced.stage_time_s
            ]
            for each in found
        ],
        [
            [[units(float(cost)) for cost in each.table.cut[:layers, j]] for j in range(each.degrees.pp_degree)]
            for each in found
        ],
        [rings(each, each.priced.parameters) for each in found],
        [tie.layers for tie in tied],
        [rings(each, [tie.parameters for tie in each.priced.tied]) for each in found],
        [scale.ceil(each) for each in syncing],
        layers,
        scale,
    )


def _most_syncing(each: Candidate, most_s: float) -> float:
    """What no stage's all-reduce exceeds, if no layer's counts as more than ``most_s``."""
    priced = each.priced
    sizes = math.fsum([*priced.parameters, *(tie.parameters for tie in priced.tied)])
    ring = max(priced.ring_s_per_parameter, default=0.0)
    return min(sizes * ring, most_s * (priced.num_layers + len(priced.tied)))


def build(data: Data) -> tuple[cpsat.SpokenModel, list[list[Any]]]:
    """The model, and ``begun[j][l]`` for stages 0 to S and layers 0 to L - 1, where 0 and 1 are known."""
    candidates, layers = range(len(data.candidates)), range(data.num_layers)
    pp = [each.degrees.pp_degree for each in data.candidates]
    stages = range(max(pp, default=1))
    stages_of = [(c, j) for c in candidates for j in range(pp[c])]

    # fmt: off
    model = cpsat.SpokenModel()
    chosen = model.booleans("chosen", candidates, "chosen[c]: the strategy is candidate c")
    model.row("one_strategy", model.add_exactly_one(chosen.values()),
        "degrees, micro-batch and placement are chosen once [AMP, section 6.2]")

    free = model.booleans("begun", [(j, layer) for j in stages[1:] for layer in layers[j:]],
        "begun[j,l]: stage j begins at layer l or before")
    begun = [[free.get((j, layer), int(j == 0)) for layer in layers] for j in range(len(stages) + 1)]
    has = [[here - after for here, after in zip(*rows, strict=True)] for rows in itertools.pairwise(begun)]
    model.rows("stages", stages[1:], lambda j: begun[j][-1] == sum(chosen[c] for c in candidates if pp[c] > j),
        "stage j begins at all if the candidate has more than j stages")
    model.rows("stays_begun", [at for at in free if at[1] < layers[-1]],
        lambda j, layer: begun[j][layer] <= begun[j][layer + 1],
        "what has begun stays so: begun[j,l] <= begun[j,l+1]")
    model.rows("not_empty", [at for at in free if at[0] < stages[-1] and at[1] < layers[-1]],
        lambda j, layer: begun[j + 1][layer + 1] <= begun[j][layer],
        "stage j has a layer before stage j + 1 begins: begun[j+1,l+1] <= begun[j,l]")

    waiting = model.integer("waiting", 0, max((sum(own) for each in data.waiting for own in each), default=0),
        "seconds of waiting for the slowest stage")
    model.rows("stage_time", stages_of,
        lambda c, j: (waiting >= sum(time * has[j][layer] for layer, time in enumerate(data.waiting[c][j])), chosen[c]),
        "at its candidate waiting takes as long as for every stage: >= (gas - 1) t_j [AMP, section 6.4]")

    def sent(c: int) -> Any:
        extra = sum(time * has[j][layer] for j, own in enumerate(data.extra[c]) for layer, time in enumerate(own))
        return extra + sum(data.cuts[c][j][layer] * (begun[j][layer] - begun[j][layer - 1])
                           for j in range(1, pp[c]) for layer in layers[1:])

    most = max((sum(map(max, cuts)) + sum(map(sum, extra)) for cuts, extra in zip(data.cuts, data.extra, strict=True)),
               default=0)
    sending = model.integer("sending", 0, most, "seconds of all cuts, and what layers take more than the least")
    model.rows("cuts", [c for c in candidates if pp[c] > 1], lambda c: (sending >= sent(c), chosen[c]),
        "at its candidate sending takes as long as the cuts: the sum of e [AMP, section 6.4]")

    def synced(c: int, j: int) -> Any:
        own = sum(cost * has[j][layer] for layer, cost in enumerate(data.rings[c][j]))
        return own + sum(cost * holds[j, i] for i, cost in enumerate(data.tied_rings[c][j]))

    syncing = [(c, j) for c, j in stages_of if data.rings[c]]
    tied = list(enumerate(data.tied)) if syncing else []
    all_reduce = model.integer("all_reduce", 0, max(data.most_all_reduce, default=0),
        "seconds of the slowest all-reduce")
    holds = model.booleans("holds", [(j, i) for j in stages for i, _ in tied],
        "holds[j,i]: stage j has a layer with the tied parameters i")
    model.rows("shared", [(j, i, layer) for j in stages for i, own in tied for layer in sorted(set(own))],
        lambda j, i, layer: holds[j, i] >= has[j][layer],
        "a stage with any of the tied layers holds what they share: holds[j,i] >= its layers of i")
    model.rows("stage_all_reduce", syncing, lambda c, j: (all_reduce >= synced(c, j), chosen[c]),
        "at its candidate the slowest all-reduce takes as long as every stage's [reconstructed]")

    # all stages once + (gas - 1) max t + sum of e + A [AMP, Equation 4]
    filling = cpsat.weighted_sum(zip(data.filling, chosen.values(), strict=True))
    model.minimize(filling + waiting + sending + all_reduce)
    # fmt: on
    return model, begun


@dataclass
class Model(cpsat.Runnable, WithoutSizes):
    """The model of ``data``."""

    model: cpsat.SpokenModel
    begun: list[list[Any]]
    data: Data

    @property
    def picks(self) -> list[Any]:
        """Which candidate the strategy is."""
        return list(self.model.variables["chosen"].values())

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        found = next(own for own, each in zip(self.data.candidates, self.picks, strict=True) if values[each])
        counts = [
            sum(each if isinstance(each, int) else int(values[each]) for each in row)
            for row in self.begun[: found.degrees.pp_degree]
        ]
        return found.plan(tuple(here - after for here, after in itertools.pairwise([*counts, 0])))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a strategy, as sums over candidates and what has begun."""

        def chosen(name: str) -> Callable[[], Any]:
            degrees = [getattr(each.degrees, name) for each in self.data.candidates]
            return lambda: cpsat.weighted_sum(zip(degrees, self.picks, strict=True))

        def layers(stage: int) -> Any:
            return sum(self.begun[stage]) - sum(self.begun[stage + 1]) if stage + 1 < len(self.begun) else 0

        return {**{each.name: chosen(each.name) for each in DEGREES}, "layers": layers}

    def values_of(self, plan: StrategyPlan) -> Iterator[tuple[Any, int]]:
        """The values of what is chosen, and of all cuts, in a plan."""
        starts = [0, *itertools.accumulate(plan.lengths)]
        yield from ((each, int(own.holds(plan))) for each, own in zip(self.picks, self.data.candidates, strict=True))
        for j, row in enumerate(self.begun[:-1]):
            start = starts[j] if j < len(plan.lengths) else len(row)
            yield from ((each, int(layer >= start)) for layer, each in enumerate(row) if not isinstance(each, int))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.data.scale.restore(max(0, cpsat.whole(bound))) * (1 - 1e-12)


def model_of(instance: AmpInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `Stopped` once the watch is."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch, complete=complete)
        return add_requirements(Model(*build(data), data), VOCABULARY, instance)


def solve(instance: AmpInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best strategy; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    return infeasible_answer(instance) or prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, to_scale=True,
        first=first_plan(instance, limits),
    )  # fmt: skip
