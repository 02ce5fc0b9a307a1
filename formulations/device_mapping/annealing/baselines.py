"""The mappings that need no search: devices in the order of their numbers, and at random.

Source: Parmesan, sections 1 and 7: consecutive (CS) mapping, which keeps the replicas of a stage together
("allreduce-first"), and mapping p2p-first; random mappings for the first upper bound of section 5.2.
"""

import random

from formulations.contract.family import Answer
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Stop, Watch

#: Random mappings of the published upper bound (their number is not published).
RANDOM_MAPPINGS = 100


def stage_major(instance: DeviceMapping) -> Mapping:
    """Consecutive devices for the replicas of a stage, stage after stage."""
    R = instance.replicas
    return Mapping(tuple(tuple(range(stage * R, (stage + 1) * R)) for stage in range(instance.num_stages)))


def pipeline_major(instance: DeviceMapping) -> Mapping:
    """Consecutive devices for the stages of a replica, replica after replica."""
    S = instance.num_stages
    return Mapping(tuple(tuple(range(stage, instance.num_devices, S)) for stage in range(S)))


def at_random(instance: DeviceMapping, rng: random.Random) -> Mapping:
    """Devices in an order drawn at random."""
    devices, R = list(range(instance.num_devices)), instance.replicas
    rng.shuffle(devices)
    return Mapping(tuple(tuple(devices[stage * R : (stage + 1) * R]) for stage in range(instance.num_stages)))


def solve_consecutive(instance: DeviceMapping, _limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Consecutive mapping."""
    return report(instance, watch, stage_major(instance))


def solve_pipeline_first(instance: DeviceMapping, _limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Consecutive mapping with the stages of a replica together."""
    return report(instance, watch, pipeline_major(instance))


def solve_random(
    instance: DeviceMapping, limits: Limits, watch: Watch, mappings: int = RANDOM_MAPPINGS
) -> Answer[Mapping]:
    """The best of some random mappings; the seed is that of the limits."""
    rng = random.Random(limits.seed)
    best, least = None, float("inf")
    for _ in range(mappings):
        plan = at_random(instance, rng)
        seconds = evaluate(instance, plan)
        if seconds < least:
            best, least = plan, seconds
            watch.plan(plan, seconds)
        if watch.stopped():
            break
    return Answer(plan=best, stop=watch.why(Stop.COMPLETED))


def report(instance: DeviceMapping, watch: Watch, plan: Mapping) -> Answer[Mapping]:
    """The answer of one mapping, which the watch has."""
    watch.plan(plan, evaluate(instance, plan))
    return Answer(plan=plan, stop=Stop.COMPLETED)
