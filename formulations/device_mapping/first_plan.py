"""What the declarative models begin with: a consecutive mapping, annealed a little."""

from __future__ import annotations

from dataclasses import replace

from formulations.device_mapping.annealing import near
from formulations.first_plan import First
from instances.device_mapping import DeviceMapping
from solvers.outcome import Limits

#: Levels of annealing.
_LEVELS = 2


def first_plan(instance: DeviceMapping, limits: Limits) -> First:
    """The better consecutive mapping, and what two levels of ``anneal`` make of it on one thread."""
    one = replace(limits, threads=1)
    return First("anneal", lambda watch: near.solve(instance, one, watch, levels=_LEVELS))
