"""Alpa's and Galvatron's dynamic programs and UniAP's objective, as far as one pair of degrees has what they decide.

All divide all devices and end with one plan, whose iteration is then simulated. Their own freedom is larger: other
degrees in each stage (Alpa), or in each layer (Galvatron, UniAP).
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from formulations.contract.family import Answer
from formulations.training_strategy.costs import Chain, Chains, Choice, Kept, Table, chain_of, plan_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.degrees import Degrees, all_degrees
from formulations.training_strategy.fixed_orders import in_flight
from formulations.training_strategy.heuristics import even_split, least_by_formula, why_none
from formulations.training_strategy.layouts import Layouts
from instances.problems.training_strategy import Schedule, StrategyInstance
from solvers.outcome import Limits, Stop, Watch

#: Steps of Galvatron's memory: its release counts megabytes, 8,192 of them where nothing else is declared.
_STEPS = 8192


def alpa(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The plan of the least S + (m - 1) C whose stages take all devices, each a submesh of 2^k of them, under 1F1B.

    S is the time of a micro-batch in all stages and C in the slowest one. For each C, ascending, a dynamic program over
    the layers has the least S; it ends once (m - 1) C alone is too much.

    Source: Alpa (Zheng et al. 2022), section 5.2, as its release has it (stage_construction.py, commit 01d71eb).
    Deviation: all stages have equal submeshes and one pair of degrees; a stage recomputes as little as fits.
    """
    return least_by_formula(instance, watch, _of_all_devices(instance, ("t", "d")), share=0.0)


def galvatron(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """As many blocks in each stage, and for each the choice of TMPCs with the least time, in steps of memory.

    The degrees are powers of two, and of these the ones with the least S + (m - 1) C + R, as for `heuristics.formula`.

    Source: Galvatron (Miao et al. 2022): a dynamic program over layers, where C(l, v, s) is the least time of the first
    l layers in v steps of memory. Its release, dynamic_programming.py, commit 67b224b. Deviation: t and d are those of
    all layers, so a strategy of a layer is whether it recomputes; with `makes_again_in_turn` room for the most that a
    layer may make again is left free, also where none does. Source: reconstructed where stages are compared.
    """
    chains: Chains = {}
    best, plan, tried = math.inf, None, 0
    for degrees in _of_all_devices(instance, ("p", "t", "d")):
        chain = chain_of(chains, instance, degrees)
        split = even_split(instance, degrees)
        if watch.stopped():
            break
        if split is None:
            continue
        tried += 1
        ends, _ = split
        chunks = list(pairwise((0, *ends)))
        choices = [_in_steps(chain, x, y, in_flight(degrees, g)) for g, (x, y) in enumerate(chunks)]
        kept = [choice for choice in choices if choice is not None]
        if len(kept) < len(chunks):
            continue
        steps = [float(chain.step[cut]) + choice.again[0] for cut, choice in zip(chunks, kept, strict=True)]
        sums = float(max(map(chain.behind(degrees).__getitem__, chunks)))
        found = math.fsum(steps) + (degrees.m - 1) * max(steps) + sums
        if found < best:
            best, plan = found, plan_of(chain, degrees, ends, kept)
    if plan is not None:
        watch.plan(plan)
    return Answer(plan, stop=watch.why(Stop.COMPLETED), reason=why_none(plan, watch), stats={"tried": tried})


def uniap(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The plan on all devices with the least time per iteration sum p_i + sum o_j + (c - 1) max(p_i, o_j), under 1F1B.

    p_i is what a micro-batch takes in stage i, o_j what it and its gradients take from stage j to the next, and c the
    number of micro-batches: sends are steps of a pipeline of their own.

    Source: UniAP (Lin et al. 2025, arXiv 2307.16375), a mixed-integer quadratic program for each number of stages and
    c. Source: reconstructed, as its rows were not at hand. Deviation: t and d are those of all layers, so a strategy of
    a layer is whether it recomputes; a chain needs no solver, but a dynamic program for each longest step. A stage's
    sum of gradients is spread over its micro-batches; an edge counts at each cut that it crosses.
    """
    return least_by_formula(instance, watch, _of_all_devices(instance, ()), share=0.0, tables=_sends_apart)


def _sends_apart(layouts: Layouts) -> tuple[Table, Table]:
    """Stages with their sums of gradients, and what each sends to the next one."""
    chain, n, chunks = layouts.chain, layouts.width, range(layouts.degrees.num_chunks)
    before = np.concatenate([[0.0], np.cumsum(chain.time)])
    own = np.stack([before[g + 1 : g + n + 1] - before[g : g + n, None] for g in chunks])
    own = own + layouts.gradients / layouts.degrees.m + layouts.again + layouts.allowed
    sent = np.stack([chain.sent[g + 1 : g + n + 1] for g in chunks])[:, None]
    return own + sent, np.maximum(own, sent)


def _of_all_devices(instance: StrategyInstance, powers: tuple[str, ...]) -> Iterator[Degrees]:
    """Degrees under 1F1B of as many devices as any have, some of them powers of two."""
    found = [
        degrees
        for degrees in all_degrees(instance)
        if degrees.schedule is Schedule.ONE_F_ONE_B and all(getattr(degrees, name).bit_count() == 1 for name in powers)
    ]
    most = max((degrees.plan().num_devices for degrees in found), default=0)
    return (degrees for degrees in found if degrees.plan().num_devices == most)


def _in_steps(chain: Chain, x: int, y: int, held: int) -> Choice | None:
    """The ways to run layers x to y - 1 with the least recomputation, so many micro-batches in flight; ``None``: none.

    Each layer takes whole steps of memory, rounded up, of what is left beside the most that a layer may make again.
    """
    least, limit = np.zeros(_STEPS + 1), chain.limit - max(chain.made(x, y))
    taken = []
    for ways in chain.ways[x:y]:
        options = np.full((len(ways), _STEPS + 1), math.inf)
        for row, way in zip(options, ways, strict=True):
            size = _size(way, held, limit)
            if size <= _STEPS:
                row[size:] = least[: _STEPS + 1 - size] + way.again
        taken.append(options.argmin(axis=0))
        least = options.min(axis=0)
    if least[-1] == math.inf:
        return None
    names, left = [], _STEPS
    for ways, rows in zip(reversed(chain.ways[x:y]), reversed(taken), strict=True):
        way = ways[rows[left]]
        names.append(way.id)
        left -= _size(way, held, limit)
    return Choice((float(least[-1]),), tuple(reversed(names)))


def _size(way: Kept, held: int, limit: float) -> int:
    """Steps of memory that a layer takes, rounded up; one more than there are where it does not fit."""
    taken = way.static + held * way.activation
    if taken <= 0:
        return 0
    return _STEPS + 1 if taken > limit else math.ceil(taken / limit * _STEPS)
