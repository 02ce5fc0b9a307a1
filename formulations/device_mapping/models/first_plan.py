"""What the declarative models begin with: a consecutive mapping, annealed a little; and how large their costs are."""

import math
from dataclasses import replace

from formulations.device_mapping.annealing import far, near
from formulations.device_mapping.annealing.baselines import pipeline_major, stage_major
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.modelling.solve_model import begin_with
from formulations.modelling.warm_start import First
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Watch

#: Levels of annealing, and devices for each start: on few of them models prove optima in less time than starts take.
_LEVELS, _DEVICES_PER_START = 2, 12
#: Up to so many devices two levels suffice; tries for the others.
_FEW_DEVICES, _FAR_TRIES = 64, 60


def first_plan(instance: DeviceMapping, limits: Limits) -> First:
    """The better consecutive mapping, and what two levels of ``anneal`` make of it on one thread.

    On many devices these levels end in a local optimum, and tries with far targets follow.
    """
    one = replace(limits, threads=1)
    starts = max(1, min(near.MAX_STARTS, instance.num_devices // _DEVICES_PER_START))

    def find(watch: Watch) -> None:
        near.solve(instance, one, watch, levels=_LEVELS, most_starts=starts)
        if instance.num_devices > _FEW_DEVICES and not watch.stopped():
            far.search(instance, limits.seed, watch, _FAR_TRIES)

    return First("anneal", find)


#: A link that alone takes this many times as long as a known plan counts as no slower, and no plan may take as long: no
#: better plan has it. HiGHS calls feasible models infeasible in which numbers are far above the objective, and beside a
#: bound that is closer to the known plan (by a thousandth, say) it proves false optima.
_MAX_SLOWDOWN = 2.0

#: Where no plan is known that meets the requirements, a link counts up to so many times a consecutive mapping.
_FAR = 1e3


def ceiling(instance: DeviceMapping, watch: Watch, *, complete: bool) -> tuple[float | None, float, float]:
    """What a model needs to know of the size of its costs, in seconds.

    What no better plan takes (twice the best one that the watch knows; ``None``: none, or ``complete``); what a link
    that is slower may as well take; and a typical plan. Consecutive mappings are reported to the watch if they meet the
    requirements.
    """
    plans = (stage_major(instance), pipeline_major(instance))
    for plan in () if complete else plans:
        begin_with(instance, plan, evaluate, violations, watch)
    known = None if complete else watch.best_objective
    if known is not None:
        return _MAX_SLOWDOWN * known, _MAX_SLOWDOWN * known, known
    typical = min(evaluate(instance, plan) for plan in plans)
    return None, math.inf if complete else _FAR * typical, typical
