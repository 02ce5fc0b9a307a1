"""What the declarative models begin with: the best of all strategies that the compiled sweep gets to."""

from __future__ import annotations

from formulations.amp_strategy import exact
from formulations.modelling.warm_start import First
from instances.problems.amp_strategy import AmpInstance
from solvers.outcome import Limits, Watch


def first_plan(instance: AmpInstance, limits: Limits) -> First:
    """The plan of ``exhaustive``, whose bound the models do not see."""

    def find(watch: Watch) -> None:
        exact.solve(instance, limits, watch, top=1)

    return First("exhaustive", find)
