"""Subproblems of every planner: rows that stand on their own, and counts that agree with brute force."""

import json
import random
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import branching_cases
import pytest
from oracles import amp_strategy as amp_oracle
from oracles import device_mapping as mapping_oracle
from oracles import layer_assignment as layer_oracle
from oracles import operator_partitioning as operator_oracle
from oracles import pipeline_placement as placement_oracle
from oracles.hierarchical_partitioning import random_hierarchical
from small_instances import family_named, known_optimum
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.contract.inner_problems import Inside, Subproblem
from formulations.device_mapping import paper
from formulations.device_mapping.definition.plan import Mapping
from planner.cli.app import main
from planner.experiments.census import census
from planner.experiments.census.extract import InnerRow, extract, rows
from planner.files.write import as_json
from planner.process.errors import CrosscheckError, UsageError
from solvers.outcome import Limits

ROWS = [(family.name, each) for family in FAMILIES for each in family.subproblems if each.walk is None]
LIMITS = Limits(time_s=20.0)
#: The exact method that is quickest on tiny instances, where it is not the one that is chosen.
QUICKEST = {"device_mapping": "cpsat"}


def _parents(problem: str) -> Iterator[Any]:
    """Tiny instances in whose runs something arises."""
    rng = random.Random(7)
    if problem == "amp_strategy":
        while True:
            yield amp_oracle.random_instance(rng)
    if problem == "pipeline_placement":
        yield planner.load("placement", objective="p2p")
        while True:
            yield placement_oracle.random_instance(rng, 2, 2, "full")
    if problem == "stage_graph":
        for seed in range(100):
            yield branching_cases.random_graph(seed, (3, 5), 3, series_parallel=True)
    if problem == "hierarchical_partitioning":
        yield from map(random_hierarchical, range(100))
    if problem == "operator_partitioning":
        while True:
            yield operator_oracle.random_instance(rng, plain=True)
    yield _mapping()


@cache
def _mapping() -> Any:
    """The first of random mappings that Algorithm 1 searches for, some targets in vain."""
    rng = random.Random(1)
    for _ in range(1000):
        instance = mapping_oracle.random_mapping(rng, 6, "full", "index")
        answers = [row.decision.answer for row in rows(instance, _inside("device_mapping", "parmesan"), LIMITS)]
        if 0 < sum(answers) < len(answers):
            return instance
    raise AssertionError("none of them")


def _rows(problem: str, inside: Inside, wanted: int = 5) -> list[InnerRow]:
    found: list[InnerRow] = []
    for _, parent in zip(range(25), _parents(problem), strict=False):
        found += rows(parent, inside, LIMITS, sample=wanted)
        if len(found) >= wanted:
            break
    return found


@thinned(("problem", "inside"), ROWS, 3, ids=[f"{p}-{i.method}-{i.problem}" for p, i in ROWS])
def test_rows_stand_on_their_own(problem: str, inside: Inside, tmp_path: Path) -> None:
    found = _rows(problem, inside)
    assert found
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row.to_json()) + "\n" for row in found))
    optima: dict[str, planner.Result] = {}
    for number, row in enumerate(found):
        child = planner.load(f"{path}#{number}")
        family = family_named(inside.problem)
        assert family.to_json(child) == row.to_json()
        origin = child.origin
        assert origin["parent_problem"] == problem and origin["method"] == inside.method
        if row.content not in optima:
            optima[row.content] = planner.solve(child, method=QUICKEST.get(inside.problem), exact=True, limits=LIMITS)
        exact = optima[row.content]
        assert exact.status in ("optimal", "infeasible")
        is_known, optimum = known_optimum(inside.problem, child)
        if is_known:
            assert exact.objective == (None if optimum is None else pytest.approx(optimum, rel=1e-6))
        if row.plan is None:
            assert "objective" not in origin and "plan" not in origin
            continue
        plan = family.plan_from_json(child, json.loads(origin["plan"]))
        assert family.judge(child, plan) == ()
        assert family.evaluate(child, plan) == row.objective == origin["objective"]
        assert exact.objective is not None and row.objective >= exact.objective * (1 - 1e-6)


def test_the_layers_of_amp_by_brute_force(tmp_path: Path) -> None:
    instance = _amp_with_losses()
    found = census(instance, problem="layer_assignment", method="amp", limits=LIMITS, out=str(tmp_path / "census"))
    losses = []
    for row in rows(instance, _inside("amp_strategy", "amp"), LIMITS):
        optimum = layer_oracle.optimum(row.instance)
        assert optimum is not None and row.objective is not None
        losses.append(row.objective / optimum - 1)
    tally = found.variants["amp"]
    missed = [loss for loss in losses if loss > 1e-6]
    assert missed
    assert (tally.instances, tally.suboptimal, tally.optimal) == (len(losses), len(missed), len(losses) - len(missed))
    assert tally.mean_loss == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    assert tally.worst_loss == pytest.approx(max(losses)) == tally.worst[0]["loss"]
    assert tally.p95_loss == pytest.approx(sorted(losses)[-(-95 * len(losses) // 100) - 1], abs=1e-9)
    worst = planner.load(tally.worst[0]["file"])
    assert worst.origin["parent"] == instance.name
    best = amp_oracle.brute_force(instance)
    assert found.end_to_end is not None and found.end_to_end["exact_inside"] >= best * (1 - 1e-9)


def _inside(problem: str, method: str) -> Inside:
    return next(each for each in family_named(problem).subproblems if each.method == method)


def _amp_with_losses() -> Any:
    """The first of random instances where the assignment without the all-reduce loses."""
    rng = random.Random(3)
    for _ in range(1000):
        instance = amp_oracle.random_instance(rng)
        found = list(rows(instance, _inside("amp_strategy", "amp"), LIMITS))
        if any(row.objective > 1.01 * (layer_oracle.optimum(row.instance) or 0) for row in found if row.objective):
            return instance
    raise AssertionError("none of them")


def test_searches_that_are_cut_off_miss_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = _mapping()
    decisions = (
        census(instance, limits=LIMITS, out=str(tmp_path / "whole"), against="cpsat", end_to_end=False)
        .variants["search"]
        .decisions
    )
    assert decisions is not None and decisions["found"] > 0 and decisions["impossible"] > 0
    assert decisions["missed"] == decisions["cut_off"] == decisions["open"] == 0
    least = mapping_oracle.least_seconds(instance)
    asked = [
        row.decision.target for row in rows(instance, _inside("device_mapping", "parmesan"), LIMITS) if row.decision
    ]
    assert decisions["found"] == sum(target >= least for target in asked)
    monkeypatch.setattr(paper, "SEARCH_TIMEOUT_S", 0.0)
    monkeypatch.setattr(paper.published, "search", lambda *_: paper.published.STOPPED)
    cut = (
        census(instance, limits=LIMITS, out=str(tmp_path / "cut"), against="cpsat", end_to_end=False)
        .variants["search"]
        .decisions
    )
    assert cut is not None and cut["missed"] > 0 and cut["found"] == 0
    assert cut["cut_off"] == cut["missed"] + cut["impossible"]


def test_a_refutation_that_is_false_is_a_contradiction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = _mapping()
    monkeypatch.setattr(paper.published, "search", lambda *_: paper.published.NONE)
    found = census(instance, out=str(tmp_path / "census"), against="cpsat", end_to_end=False)
    assert not found.agree and "proves that there is none" in found.contradictions[0]


def test_what_is_no_plan_is_refused() -> None:
    instance = planner.load("fig2")
    wrong = Subproblem(instance, "search", Mapping(((0,), (0,), (1,), (2,))))
    inside = Inside("parmesan", "device_mapping", "", arise=lambda *_: iter([lambda: wrong]))
    with pytest.raises(CrosscheckError, match="breaks"):
        list(rows(instance, inside, LIMITS))


def test_an_exact_method_can_be_named(tmp_path: Path) -> None:
    instance = _amp_with_losses()
    found = [
        census(instance, against=name, out=str(tmp_path / "census"), limits=LIMITS, end_to_end=False, sample=2)
        for name in ("cpsat", "milp", None)
    ]
    methods = [json.loads(line)["method"] for line in (tmp_path / "census" / "optima.jsonl").read_text().splitlines()]
    assert methods[:4] == ["cpsat", "cpsat", "milp", "milp"] and methods[4] not in ("cpsat", "milp")
    assert len({each.variants["amp"].suboptimal for each in found}) == 1


@pytest.mark.slow
def test_processes_agree(tmp_path: Path) -> None:
    instance = _amp_with_losses()
    found = [census(instance, jobs=jobs, out=str(tmp_path / str(jobs)), limits=LIMITS).to_json() for jobs in (1, 2)]
    for each in found:
        for name in ("seconds", "cpu_seconds", "out"):
            del each[name]
        for tally in each["variants"].values():
            tally["worst"] = [row["loss"] for row in tally["worst"]]
    assert found[0] == found[1]


def test_a_census_resumes(tmp_path: Path) -> None:
    instance, out = _amp_with_losses(), tmp_path / "census"
    first = census(instance, out=str(out), limits=LIMITS, end_to_end=False)
    kept = (out / "optima.jsonl").read_text().splitlines()
    assert len(kept) == first.variants["amp"].distinct > 2
    (out / "optima.jsonl").write_text("\n".join(kept[:2]) + "\n" + kept[2][:40])  # killed while it wrote
    lines: list[str] = []
    again = census(instance, out=str(out), limits=LIMITS, end_to_end=False, notice=lines.append)
    assert lines == [f"2 of {len(kept)} optima lie in {out} already"]
    assert {**again.to_json(), "seconds": 0, "cpu_seconds": 0} == {**first.to_json(), "seconds": 0, "cpu_seconds": 0}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").touch()
    with pytest.raises(UsageError, match="an empty folder"):
        census(instance, out=str(tmp_path / "other"))


def test_samples_of_rows(tmp_path: Path) -> None:
    instance = next(_parents("amp_strategy"))
    everything = extract(instance, str(tmp_path / "all.jsonl"), problem="layer_assignment")
    assert extract(instance, str(tmp_path / "some.jsonl.gz"), problem="layer_assignment", sample=2) == 2 < everything
    found = {planner.load(tmp_path / f"all.jsonl#{row}").name for row in range(everything)}
    assert {planner.load(tmp_path / f"some.jsonl.gz#{row}").name for row in range(2)} <= found


def test_every_row_has_the_same_chance() -> None:
    instance, tries = planner.load("fig2"), 300
    made = [partial(Subproblem, instance, "search", None, {"which": number}) for number in range(6)]
    inside = Inside("parmesan", "device_mapping", "", arise=lambda *_: iter(made))
    drawn = [
        [int(row.instance.origin["which"]) for row in rows(instance, inside, LIMITS, 2, seed)] for seed in range(tries)
    ]
    assert all(len(set(each)) == 2 and each == sorted(each) for each in drawn)
    counts = [sum(number in each for each in drawn) for number in range(6)]
    assert all(0.2 * tries < count < 0.47 * tries for count in counts)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent, out, folder = tmp_path / "parent.json", tmp_path / "rows.jsonl", str(tmp_path / "census")
    parent.write_text(as_json(family_named("amp_strategy").to_json(_amp_with_losses())))
    kind = ["--problem", "layer_assignment", "--from", "amp"]
    assert main(["extract", str(parent), *kind, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == len(out.read_text().splitlines()) > 0 and found["method"] == "amp"
    assert main(["census", str(parent), *kind, "--out", folder, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["subproblem"] == "layer_assignment" and shown["instances"] == found["rows"] and shown["complete"]
    assert main(["census", str(parent), *kind, "--out", folder, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "sub-optimal" in said and "end to end" in said


def test_an_operator_graph_on_a_network(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    graph = ["resnet50", "--topology", "two-level", "--stages", "2", "--replicas", "2"]
    assert main(["extract", *graph, "--from", "turns", "--sample", "3", "--out", str(out)]) == 0
    for row in range(len(out.read_text().splitlines())):
        child = planner.load(f"{out}#{row}")
        assert child.origin["parent_problem"] == "pipeline_placement" and len(child.bandwidth_bytes_per_s) == 4


def test_a_run_that_reaches_its_limit_is_reported(tmp_path: Path) -> None:
    lines: list[str] = []
    census(_mapping(), out=str(tmp_path), limits=Limits(time_s=0.0), end_to_end=False, notice=lines.append)
    assert lines == ["the run of parmesan was ended at the time limit: 0 subproblems of its beginning"]


def test_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "pipeline_placement", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["families"][0]["subproblems"]
    assert [(each["problem"], each["method"]) for each in listed] == [
        ("device_mapping", "turns"),
        ("device_mapping", "parmesan"),
        ("operator_partitioning", "parmesan"),
    ]
    assert main(["list", "amp_strategy"]) == 0
    assert "mesh_tiling --from amp-sa" in capsys.readouterr().out


def test_kinds_name_methods_and_problems_that_exist() -> None:
    names = {family.name for family in FAMILIES}
    for family in FAMILIES:
        for each in family.subproblems:
            assert family.method(each.method).name == each.method and each.problem in names
            assert (each.arise is None) != (each.walk is None)
        kinds = [(each.problem, each.method) for each in family.subproblems]
        assert len(set(kinds)) == len(kinds)
