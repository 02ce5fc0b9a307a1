"""What the models begin with on many devices."""

import pytest

import planner
from formulations.device_mapping.data.costs import simple_bound
from formulations.device_mapping.models.first_plan import first_plan
from solvers.outcome import Limits, Watch


@pytest.mark.slow
def test_a_large_torus_is_left_by_far_targets() -> None:
    """Two levels of annealing alone end 5 % above the optimum, which is the simple bound."""
    instance = planner.load("torus3d", stages=16, replicas=16)
    watch = Watch()
    first_plan(instance, Limits()).find(watch)
    assert watch.best_objective is not None and watch.best_objective <= 1.01 * simple_bound(instance)
