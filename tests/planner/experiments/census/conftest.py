"""An instance whose heuristics fail, and its census."""

import pytest
from strategies import random_stage_instance

from formulations.stage_partitioning.questions.studies.subproblems import Subproblems
from instances.problems.stage_partitioning import StageInstance
from planner.experiments.census import census
from planner.experiments.census.knapsacks import KnapsackCensus


@pytest.fixture(scope="module")
def instance() -> StageInstance:
    """A few nodes with pairs of TMPCs, where the heuristics do fail, by different gaps, and at the cost of the plan.

    The only one of the first 3,000 seeds where they cost the plan anything.
    """
    found = random_stage_instance(683, max_nodes=6, max_tmpcs=2, memory="tight")
    assert _fails(found)
    return found


def _fails(instance: StageInstance) -> bool:
    calls = Subproblems(instance)
    rules = calls.survey(1, calls.num_downsets).rules
    failed = rules["sort-once"].suboptimal > 3 and rules["truncating"].suboptimal > 3
    return calls.num_downsets > 15 and failed and len({gap for gap, _ in rules["rerank"].worst}) > 1


@pytest.fixture(scope="module")
def whole(instance: StageInstance, tmp_path_factory: pytest.TempPathFactory) -> KnapsackCensus:
    return census(instance, out=str(tmp_path_factory.mktemp("whole")), crosscheck=3)
