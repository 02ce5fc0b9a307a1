"""DAPPLE's three policies: machines that a stage's replicas are taken from, stage after stage.

Source: Fan et al. 2021 (DAPPLE, arXiv 2007.01045), device assignment. DAPPLE's planner chooses a policy for each
stage. Parmesan, section 2: "DAPPLE proposes three heuristic-based policies to perform device mapping while lacking
guarantee on the solution quality and optimality." Reconstructed: one policy for all stages, stages in the order of
their numbers, ties by the least number. Machines, which an instance does not name, are the groups into which devices
fall apart most clearly by bandwidth; all devices are one machine where they do not.
"""

from collections.abc import Callable, Iterable

from formulations.contract.family import Answer
from formulations.device_mapping.annealing.baselines import report
from formulations.device_mapping.bounds.combinatorial import groupings
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.definition.plan import Mapping
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Watch

#: Devices of each machine, free ones and all of them.
Machines = list[tuple[list[int], int]]


def solve_fresh_first(instance: DeviceMapping, _limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Every stage begins on machines that nobody uses, so that its replicas share as few as they can."""
    return _placed(instance, watch, lambda machines: _one_after_another(_fresh(machines), _used(machines)))


def solve_append_first(instance: DeviceMapping, _limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Every stage fills the machines in use first, so that no devices are left between stages."""
    return _placed(instance, watch, lambda machines: _one_after_another(_used(machines), _fresh(machines)))


def solve_scatter_first(instance: DeviceMapping, _limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Every stage takes devices of all machines in use in turn, of all machines where none is in use."""
    return _placed(instance, watch, lambda machines: [*_in_turn(_used(machines)), *_in_turn(_fresh(machines))])


def _placed(instance: DeviceMapping, watch: Watch, order: Callable[[Machines], list[int]]) -> Answer[Mapping]:
    """``order`` gives the free devices in the order in which the next stage takes them."""
    machines = [(devices, len(devices)) for devices in machines_of(instance)]
    stages = []
    for _ in range(instance.num_stages):
        taken = tuple(order(machines)[: instance.replicas])
        stages.append(taken)
        machines = [([device for device in free if device not in taken], size) for free, size in machines]
    return report(instance, watch, Mapping(tuple(stages)))


def machines_of(instance: DeviceMapping) -> list[list[int]]:
    """The devices of each machine, ascending."""
    found = groupings(arrays(instance), most=instance.num_devices)
    return [mask.nonzero()[0].tolist() for mask in found[0]] if found else [list(range(instance.num_devices))]


def _fresh(machines: Machines) -> list[list[int]]:
    return [free for free, size in machines if len(free) == size]


def _used(machines: Machines) -> list[list[int]]:
    return [free for free, size in machines if len(free) < size]


def _one_after_another(*parts: Iterable[list[int]]) -> list[int]:
    return [device for part in parts for free in part for device in free]


def _in_turn(machines: list[list[int]]) -> list[int]:
    """The first device of each machine, then the second of each, and so on."""
    return [
        device
        for _, _, device in sorted((turn, at, d) for at, free in enumerate(machines) for turn, d in enumerate(free))
    ]
