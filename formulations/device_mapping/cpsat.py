"""CP-SAT alone: cheap bounds, then a model that fits the structure decides targets until the gap is closed.

- the layered flow (`flow`) where no ring counts and there are many bandwidths
- the level model (`level`) where bandwidths are few; without edges it is the position model of rings
- cycles as columns (`columns`) or two-factors (`rings`) first, where only rings count and few or short rings exist
"""

from __future__ import annotations

from formulations.device_mapping.bounding import answer, begin
from formulations.device_mapping.bounds import assignment_bound
from formulations.device_mapping.problem import Mapping
from formulations.device_mapping.proof import close
from formulations.family import Answer
from instances.device_mapping import DeviceMapping
from solvers.outcome import Limits, Prover, Stop, Watch


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """The best plan and bound that the model of the instance's structure finds."""
    if watch.stopped():
        return Answer(stop=watch.why())
    deciders = begin(instance, limits, watch)
    found = {"bound_assignment": assignment_bound(deciders.arrays)}
    watch.bound(found["bound_assignment"], Prover.BOUNDS)
    for decide in deciders.choose().values():
        close(deciders.gap, decide)
    return answer(deciders, watch.why(Stop.COMPLETED), found)
