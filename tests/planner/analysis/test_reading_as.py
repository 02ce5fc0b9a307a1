"""``--problem``: an instance of one family read as one of another."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from instances.errors import InstanceError
from instances.problems.flushed_partitioning import Fill, Objective, Schedule, flush_pipeline
from instances.problems.hierarchical_partitioning import MemoryModel, on_machines
from planner.display.tables import table_of_objects
from planner.files.load import family_of
from planner.process.errors import UsageError

CLUSTER = {"devices_per_machine": 2, "num_machines": 2, "inner_bandwidth": "10GB/s", "outer_bandwidth": "1GB/s"}


def test_on_machines_as_if_the_file_said_so(tmp_path: Path) -> None:
    flat = planner.load("chain8", memory="48MB", microbatches=5)
    expected = on_machines(flat, 2, 2, 10e9, 1e9, MemoryModel.CRUDE)
    given = {"memory": "48MB", "microbatches": 5, "memory_model": "crude", **CLUSTER}
    assert planner.load("chain8", problem="hierarchical_partitioning", **given) == expected
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(family_of(flat).to_json(planner.load("chain8"))))
    found = planner.load(path, problem="hierarchical_partitioning", **given)
    assert replace(found, flat=replace(found.flat, options=flat.options)) == expected


def test_with_flushes_as_if_the_file_said_so() -> None:
    """A network says nothing of what is minimised: the iteration, unless an objective or a formula's fill is given."""
    flat = planner.load("chain8", devices=3)
    given = {"problem": "flushed_partitioning", "devices": 3}
    shortest = replace(flush_pipeline(flat), objective=Objective.ITERATION)
    assert planner.load("chain8", **given) == planner.load("chain8", **given, objective="iteration") == shortest
    assert planner.load("chain8", **given, objective="formula") == flush_pipeline(flat)
    assert planner.load("chain8", **given, fill="stages") == flush_pipeline(flat)
    by_replicas = planner.load("chain8", **given, fill="replicas")
    assert by_replicas == replace(flush_pipeline(flat), fill=Fill.REPLICAS)
    assert planner.load("chain8", **given, fill="replicas", objective="iteration").objective is Objective.ITERATION
    assert planner.load("chain8", **given, schedule="gpipe") == replace(shortest, schedule=Schedule.GPIPE)


def test_a_declared_instance_keeps_its_objective(tmp_path: Path) -> None:
    """With the field or without it, which is the formula."""
    path = tmp_path / "flushed.json"
    content = family_of(flushed := planner.load("chain8-flushed")).to_json(flushed)
    path.write_text(json.dumps(content))
    assert "objective" not in content
    assert planner.load(path).objective is planner.load("chain8-flushed").objective is Objective.FORMULA
    path.write_text(json.dumps({**content, "objective": "iteration"}))
    assert planner.load(path).objective is planner.load(path, microbatches=4).objective is Objective.ITERATION


def test_bandwidths_of_a_cluster_are_per_second_where_units_are_fixed() -> None:
    given = {"problem": "hierarchical_partitioning", "time_unit": "ms", **CLUSTER}
    found = planner.load("chain8", fix_units=True, **given)
    assert (found.inner_bandwidth, found.outer_bandwidth) == (10e6, 1e6)
    found = planner.load("chain8", **given)
    assert (found.inner_bandwidth, found.outer_bandwidth) == (10e9, 1e9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schedule": "gpipe"}, "add --problem flushed_partitioning"),
        ({"num_machines": 2}, "add --problem hierarchical_partitioning"),
        ({"problem": "flushed"}, "'flushed'; expected one of flushed_partitioning, "),
        ({"problem": "tmpc_knapsack"}, "'tmpc_knapsack'; expected one of training_strategy, stage_partitioning"),
        ({"problem": "hierarchical_partitioning", "num_machines": 2}, "--devices-per-machine is missing"),
        ({"problem": "hierarchical_partitioning", **CLUSTER, "outer_bandwidth": None}, "--outer-bandwidth is missing"),
        ({"problem": "hierarchical_partitioning", **CLUSTER, "cost_model": "released"},
         "not of hierarchical_partitioning"),
        ({"problem": "flushed_partitioning", "num_machines": 2}, "not of flushed_partitioning"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_so_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises((InstanceError, UsageError)) as caught:
        planner.load("chain8", **given)
    assert words in str(caught.value)


def test_its_own_problem_may_be_named() -> None:
    assert planner.load("chain8-flushed", problem="flushed_partitioning") == planner.load("chain8-flushed")
    with pytest.raises(UsageError, match="expected one of device_mapping"):
        planner.load("fig2", problem="stage_partitioning")


def test_stages_inside_a_superstage_have_rows_of_their_own() -> None:
    plan = planner.solve(planner.load("chain8-machines"), exact=True).plan
    headings, rows = table_of_objects(plan["stages"])
    assert headings[:3] == ["#", "dp_degree", "inner nodes"]
    assert len(rows) == sum(len(stage["inner"]) for stage in plan["stages"]) > len(plan["stages"])
    assert [row[0] for row in rows][:2] == ["0.0", "0.1"] and rows[1][1] == ""
