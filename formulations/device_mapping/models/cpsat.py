"""CP-SAT alone: a model that fits the structure decides targets until the gap is closed, with no bound to help it.

- the layered flow (`flow`) where no ring counts and there are many bandwidths
- the level model (`level`) where bandwidths are few; without edges it is the position model of rings
- cycles as columns (`cycles`) or as sets of links (`links`) first, where only rings count and few or short rings exist

They renumber replicas and exchange devices and stages. Where requirements tell these apart, one model of devices and
links minimises the slowest stage instead (`direct`).
"""

from __future__ import annotations

from dataclasses import replace

from formulations.contract.family import Answer
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.device_mapping.models import direct
from formulations.device_mapping.models.all_bounds import answer, begin
from formulations.device_mapping.models.bisect_gap import close
from formulations.device_mapping.models.first_plan import first_plan
from formulations.modelling.solve_model import prove
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Prover, Stop, Watch


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """The best plan and bound that the model of the instance's structure finds, from a first plan on (`first_plan`)."""
    if watch.stopped():
        return Answer(stop=watch.why())
    if instance.requirements:
        return prove(
            instance,
            lambda: direct.build(instance, watch),
            evaluate,
            violations,
            limits,
            watch,
            reason="no mapping meets the requirements",
            to_scale=True,
            first=first_plan(instance, limits),
        )
    models = begin(instance, limits, watch, Prover.SOLVER, bounded=False)
    watch.bound(0.0, Prover.BOUNDS)  # nothing takes less, so a plan that takes no time needs no proof
    first = first_plan(instance, limits)
    known = first.report(instance, evaluate, violations, watch)
    for decide in models.choose().values():
        close(models.gap, decide, part=0.5)
    found = answer(models, watch.why(Stop.COMPLETED), {})
    return replace(found, stats={**found.stats, **first.origin(known, watch)})
