"""Overrides and edits of stage-partitioning instances: what each does, in which order, and what it refuses."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance, stage_instances
from thinned import thinned

import planner
from formulations.stage_partitioning import FAMILY
from instances.errors import InstanceError
from instances.graph import topological_order
from instances.problems.published import UNIT_WARNING
from instances.problems.stage_edits import ORDERS, first_nodes, linearise, with_degrees, without_tmpcs
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from planner.analysis.frontier import frontier
from planner.experiments.census.run import census


def tmpc(name: str = "x", time: float = 1.0, **volumes: Any) -> Tmpc:
    return Tmpc(name, time, 1.0, 1.0, 1.0, **volumes)


#: A diamond 3 -> {1, 2} -> 0, given in no particular order.
DIAMOND = StageInstance(
    name="diamond",
    layers=(
        Layer(0, {1: (tmpc(sync_forward_bytes={1: 4.0, 2: 5.0}),)}, "d"),
        Layer(1, {1: (tmpc(), tmpc("y")), 2: (tmpc(),)}, "c"),
        Layer(2, {1: (tmpc(), tmpc("y"))}, "b"),
        Layer(3, {1: (tmpc(sync_backward_bytes={1: 6.0, 2: 7.0}),), 4: (tmpc("y"),)}, "a"),
    ),
    edges=(Edge(3, 1, 1.0), Edge(3, 2, 2.0), Edge(1, 0, 3.0), Edge(2, 0, 4.0)),
    num_devices=2,
    memory_bytes=50.0,
    bandwidth=1.0,
    num_microbatches=4,
)


def apply(instance: StageInstance = DIAMOND, **overrides: Any) -> StageInstance:
    return FAMILY.read(instance, "file.json", overrides)


def test_numbers():
    changed = apply(devices="8", memory="8GiB", bandwidth="25GiB/s", microbatches="16", max_dp="3", exactly=True)
    assert (changed.num_devices, changed.memory_bytes, changed.bandwidth) == (8, 8 * 2**30, 26843545600.0)
    assert (changed.num_microbatches, changed.max_dp_degree, changed.exactly) == (16, 3, True)
    assert changed.options == {
        "devices": 8, "memory": 8.0 * 2**30, "bandwidth": 26843545600.0, "microbatches": 16, "max-dp": 3,
        "exactly": True,
    }  # fmt: skip
    assert apply(cost_model="released").cost_model is CostModel.RELEASED


def test_nothing_given_changes_nothing():
    assert apply() == DIAMOND
    assert apply(devices=None, exactly=False) == DIAMOND


def test_names_with_dashes_or_underscores_and_parsed_values():
    assert FAMILY.read(DIAMOND, "x", {"max-dp": 3}) == apply(max_dp="3")
    assert apply(tp=(1, 2)) == apply(tp="2,1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"devices": "0"}, "--devices is '0'; expected an integer from 1 to 1000000"),
        ({"devices": "many"}, "--devices is 'many'; expected an integer"),
        ({"devices": 2.5}, "--devices is 2.5; expected an integer"),
        ({"memory": "8 XB"}, "--memory is '8 XB'; expected a size such as 8GiB"),
        ({"memory": "1e40"}, "expected a size such as 8GiB, 8GB or a number of bytes, 0 or a positive number"),
        ({"bandwidth": "0"}, "--bandwidth is '0'; expected a bandwidth such as 25GiB/s"),
        ({"cost_model": "mine"}, "--cost-model is 'mine'; expected paper or released or runtime"),
        ({"tp": "3"}, "--tp is '3'; expected degrees that some node has TMPCs for: 1, 2, 4"),
        ({"tp": "2"}, "--tp is '2'; expected a choice that leaves node 0 a TMPC"),
        ({"tp": "0"}, "--tp is '0'; expected positive integers"),
        ({"forbid_tmpc": "Y"}, "--forbid-tmpc is 'Y'; expected ids of TMPCs that some node has"),
        ({"forbid_tmpc": "x"}, "--forbid-tmpc is 'x'; expected a choice that leaves node 0 a TMPC"),
        ({"first": "5"}, "--first is 5; expected from 1 to 4 nodes"),
        ({"layers": "48"}, "--layers is 48; expected the published 32-layer BERT"),
        ({"linearize": "up"}, "--linearize is 'up'; expected id or name or depth-first or lifo"),
        ({"time_unit": "h"}, "--time-unit is 'h'; expected s or ms"),
        ({"memry": "1"}, "--memry is '1'; expected a setting that exists (closest: memory)"),
    ],
)
def test_bad_overrides_are_named(overrides: dict[str, Any], message: str):
    with pytest.raises(InstanceError) as refused:
        apply(**overrides)
    assert str(refused.value).startswith("file.json: ") and message in str(refused.value)


def test_first_nodes_in_topological_order_with_ties_by_id():
    first = first_nodes(DIAMOND, 3)
    assert [layer.id for layer in first.layers] == [3, 1, 2]
    assert first.edges == DIAMOND.edges[:2]
    last = first_nodes(DIAMOND, 2)
    assert last.layers[0].tmpcs[1][0].sync_backward_bytes == {1: 6.0}
    assert first_nodes(DIAMOND, 4).layers[3].tmpcs == DIAMOND.layers[0].tmpcs


def test_numbers_come_before_text_among_ids_and_ids_are_not_sorted_as_text():
    layers = tuple(Layer(node, {1: (tmpc(),)}) for node in ("b", 10, "a", 9))
    free = replace(DIAMOND, layers=layers, edges=())
    assert [layer.id for layer in first_nodes(free, 4).layers] == [9, 10, "a", "b"]


def test_restrictions():
    assert [sorted(layer.tmpcs) for layer in with_degrees(DIAMOND, {1, 4}).layers] == [[1], [1], [1], [1, 4]]
    bare = without_tmpcs(DIAMOND, ["y"])
    assert [[x.id for xs in layer.tmpcs.values() for x in xs] for layer in bare.layers] == [
        ["x"], ["x", "x"], ["x"], ["x"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "new"), [("id", (1, 2)), ("name", (2, 1)), ("lifo", (2, 1)), ("depth-first", (1, 2))]
)
def test_linearise_orders(order: str, new: tuple[int, int]):
    changed = apply(linearize=order)
    assert changed.edges == (*DIAMOND.edges, Edge(*new, 0.0))
    assert changed.options == {"linearize": order}


@given(stage_instances(), st.sampled_from(ORDERS))
def test_linearised_graphs_have_one_topological_order(instance: StageInstance, order: str):
    chain = linearise(instance, order)
    n = len(chain.layers)
    forwards = topological_order(n, chain.edge_indices)
    assert forwards == topological_order(n, chain.edge_indices, lambda node: -node)
    assert len(forwards) == n


def test_linearising_keeps_chains_and_never_helps(cases: int):
    for seed in range(cases):
        instance = random_stage_instance(seed, max_nodes=4)
        before, after = brute_force(instance), brute_force(linearise(instance, "id"))
        if after is not None:
            assert before is not None and before.time <= after.time + 1e-12
    chain = random_stage_instance(3, shape="chain")
    assert linearise(chain, "id") == chain


def test_first_comes_before_linearize_and_restrictions_before_numbers():
    changed = apply(first=3, linearize="id", tp="1", devices=1)
    assert {(edge.source, edge.target) for edge in changed.edges} == {(3, 1), (3, 2), (1, 2)}
    assert all(list(layer.tmpcs) == [1] for layer in changed.layers)


def test_bandwidth_of_an_instance_in_milliseconds():
    ms = replace(DIAMOND, time_unit="ms")
    assert apply(ms).bandwidth == 1.0 and apply(ms).warnings == ()
    as_published = apply(ms, bandwidth="25GiB/s")
    assert as_published.bandwidth == 25 * 2**30 and as_published.warnings == (UNIT_WARNING,)
    fixed = apply(ms, bandwidth="25GiB/s", fix_units=True)
    assert fixed.bandwidth == 25 * 2**30 / 1000 and fixed.warnings == ()
    assert fixed.options["fix-units"] is True


def test_fixing_twice_is_fixing_once():
    doubtful = replace(DIAMOND, time_unit="ms", warnings=(UNIT_WARNING,))
    once = apply(doubtful, fix_units=True)
    assert once.bandwidth == 1e-3
    assert apply(once, fix_units=True).bandwidth == 1e-3
    assert apply(doubtful).warnings == (UNIT_WARNING,) and apply(doubtful).bandwidth == 1.0


def test_declaring_the_time_unit():
    assert FAMILY.unit(DIAMOND) == "s"
    declared = apply(time_unit="ms")
    assert FAMILY.unit(declared) == "ms" and FAMILY.warnings(declared) == (UNIT_WARNING,)
    assert apply(time_unit="ms", fix_units=True).bandwidth == 1e-3
    assert apply(fix_units=True) == replace(DIAMOND, options={"fix-units": True})


def read_published(folder: Path, name: str, **overrides: Any) -> StageInstance:
    return FAMILY.read(json.loads((folder / "piper" / f"{name}.json").read_text()), f"{name}.json", overrides)


@pytest.mark.paper
def test_published_milliseconds(published: Path):
    assert read_published(published, "gnmt", bandwidth="25GiB/s").bandwidth == 26843545600.0
    fixed = read_published(published, "gnmt", bandwidth="25GiB/s", fix_units=True)
    assert fixed.bandwidth == pytest.approx(26843545.6) and fixed.warnings == ()
    assert read_published(published, "resnet", fix_units=True).bandwidth == 25e6


@pytest.mark.paper
def test_a_longer_bert(published: Path):
    bert = read_published(published, "bert32a100")
    assert read_published(published, "bert32a100", layers=32) == replace(bert, options={"layers": 32})
    longer = read_published(published, "bert32a100", layers=48)
    assert len(longer.layers) == 37 + 16 and len(longer.edges) == 67 + 16
    new = [layer.id for layer in longer.layers if layer.id not in bert.index]
    chain = [34, *new, 35]
    size = {(edge.source, edge.target): edge.bytes for edge in longer.edges}
    assert (34, 35) not in size
    for u, v in pairwise(chain):
        assert size[u, v] == 16777216.0
    model = bert.layers[bert.index[34]]
    for before, node, after in zip(chain, new, chain[2:], strict=False):
        copy = longer.layers[longer.index[node]]
        for t, tmpcs in copy.tmpcs.items():
            for x, original in zip(tmpcs, model.tmpcs[t], strict=True):
                assert x.sync_forward_bytes == {before: original.sync_forward_bytes[33]}
                assert x.sync_backward_bytes == {after: original.sync_backward_bytes[35]}
                assert (x.id, x.time, x.static_bytes) == (original.id, original.time, original.static_bytes)
    # The ends keep the volumes of the edge that was cut, under their new neighbours.
    for t in (1, 8):
        ahead, behind = (longer.layers[longer.index[node]].tmpcs[t][0] for node in (34, 35))
        assert ahead.sync_backward_bytes[new[0]] == model.tmpcs[t][0].sync_backward_bytes[35]
        assert 34 not in behind.sync_forward_bytes and new[-1] in behind.sync_forward_bytes
    again = json.loads(json.dumps(FAMILY.to_json(longer)))
    assert FAMILY.read(again, "again", {}) == longer
    with pytest.raises(InstanceError, match="--layers is 31; expected from 32 to 4096 layers"):
        read_published(published, "bert32a100", layers=31)


@thinned("given", [{}, {"cost_model": "released"}, {"cost_model": "paper"}])
def test_every_result_says_under_which_cost_model(given: dict[str, str], tmp_path: Path) -> None:
    """Also where it is the instance's own, and where it was changed in Python."""
    instance = planner.load("diamond", **given)
    own = given.get("cost_model", "paper")
    results = [planner.solve(instance, method=name) for name in ("exact", "piper", "equi", "equi-no-tp", "pipedream")]
    assert [result.options["cost-model"] for result in results] == [own] * 5
    assert frontier(instance).to_json()["options"]["cost-model"] == own
    assert census(instance, out=str(tmp_path)).to_json()["options"]["cost-model"] == own
    changed = replace(instance, cost_model=CostModel.RELEASED)
    assert planner.solve(changed, method="exact").options["cost-model"] == "released"
