"""The target decisions of Algorithm 1: is there a mapping whose slowest stage takes at most this long?

Source: Parmesan, section 5.2; a search that is cut off counts as "no" there.
"""

from collections.abc import Iterator
from functools import partial

from formulations.contract.inner_problems import Arisen, Decision, Subproblem
from formulations.device_mapping.paper import decisions
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Watch


def of_parmesan(instance: DeviceMapping, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """Each target, the interval that it lies in, and how its search ended."""
    for outcome, low, high in decisions(instance, limits, watch):
        found = outcome.plan is not None
        ended = "found" if found else "exhausted" if outcome.complete else "cut off"
        yield partial(
            Subproblem,
            instance,
            "search",
            outcome.plan,
            {"low_s": low, "high_s": high, "search": ended},
            Decision(outcome.target, found, outcome.complete and outcome.proves),
        )
