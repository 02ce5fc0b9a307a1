"""The claims of AMP: every strategy, the published predictions, the printed tables."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from oracles.amp_strategy import plans, random_instance
from oracles.iteration import iteration_s
from thinned import thinned

import planner
from formulations.amp_strategy.definition.plan import StrategyPlan, plan_from_json
from formulations.amp_strategy.definition.problem import layer_assignment, terms
from instances.errors import InstanceError
from instances.generators.amp_experiments import (
    EXPERIMENTS,
    analytic_profiles,
    experiment,
    lengths_between,
    printed_cuts,
)
from instances.problems.amp_strategy import AmpInstance
from planner.process.errors import UsageError
from planner.reproduction.amp.shortest_iteration import shortest_iteration
from planner.reproduction.amp.strategies import examine
from planner.reproduction.amp.tables import PRINTED
from planner.reproduction.reproduce import reproduce
from planner.training.runtime.fidelity import spearman
from solvers.outcome import Limits, Stop, Watch

#: Strategies; printed rows; of those, the same cuts, and equivalent ones.
NAMES = {"amp-homogeneous": (53, 10, 10, 0), "amp-het-cluster": (53, 10, 9, 0), "amp-het-model": (65, 7, 2, 2)}
#: For what is asked of an experiment like of any other.
MOSTLY_SLOW = [pytest.param(name, marks=[pytest.mark.slow] if name != "amp-het-cluster" else []) for name in NAMES]
#: Runs of AMP that were printed and published, and those with the same seconds.
SECONDS = {"amp-homogeneous": (3, 3), "amp-het-cluster": (3, 3), "amp-het-model": (1, 0)}
#: The keys that a row has whatever else it has.
KEYS = (
    *("microbatch", "tp_degree", "dp_degree", "pp_degree", "partition"),
    *("predicted_s", "exact_s", "exact_joint_s", "measured_s"),
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where published inputs are is said by ``inputs`` alone."""
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)


@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_without_inputs_an_analytic_profile_stands_in_and_says_so(name: str) -> None:
    found = reproduce(name).evidence
    assert "analytic" in found.inputs and (found.compared, found.matched, found.tables) == (0, 0, None)
    assert len(found.rows) == NAMES[name][0]
    for row in found.rows:
        assert row["exact_joint_s"] <= min(row["exact_s"], row["predicted_s"]) * (1 + 1e-12)
        assert row["exact_pipeline_s"] <= row["predicted_pipeline_s"] * (1 + 1e-12)
        assert row["exact_pipeline_s"] <= row["exact_s"] and row["predicted_pipeline_s"] <= row["predicted_s"]
        assert row["measured_s"] is None and row["cuts"] is None and row["predicted_met"] is None


@pytest.mark.paper
@thinned("name", NAMES)
def test_published_predictions_and_tables(name: str, published: Path) -> None:
    strategies, printed, same, equivalent = NAMES[name]
    shown = reproduce(name, inputs=str(published / "amp")).to_json()
    rows, tables = shown["rows"], shown["tables"]
    assert shown["inputs"] == "published"
    assert len(rows) == strategies == len({tuple(row[key] for key in KEYS[:4]) for row in rows})
    assert {tuple(row)[: len(KEYS)] for row in rows} == {KEYS}
    logged = [row for row in rows if row["predicted_met"] is not None]
    assert len(logged) == shown["compared"] == shown["matched"] >= 20
    assert all(row["predicted_met"] and row["cuts"] == "match" for row in logged)
    assert [row["predicted_s"] for row in rows] == sorted(row["predicted_s"] for row in rows)
    words = [row["cuts"] for row in tables["rows"]]
    assert (words.count("match"), words.count("equivalent")) == (same, equivalent)
    assert (tables["cuts_compared"], tables["cuts_matched"]) == (printed, same + equivalent)
    assert len(tables["rows"]) == printed
    assert (tables["seconds_compared"], tables["seconds_matched"]) == SECONDS[name]
    for row in tables["rows"]:
        assert (row["partition"] == row["printed_partition"]) is (row["cuts"] == "match")


@pytest.mark.paper
def test_cuts_among_layers_that_do_nothing_are_called_equivalent(published: Path) -> None:
    found = reproduce("amp-het-model", inputs=str(published / "amp")).evidence
    assert found.tables is not None
    rows = [row for row in found.tables.rows if row["table"] == 10]
    assert [row["partition"] for row in rows] == [[0, 15, 56], [0, 9, 15, 47, 56]]
    assert [row["printed_partition"] for row in rows] == [[0, 41, 56], [0, 9, 41, 47, 56]]
    assert {row["cuts"] for row in rows} == {"equivalent"}


@pytest.mark.paper
@pytest.mark.parametrize(
    ("between_nodes", "expected"),
    [
        pytest.param(
            None, {"homogeneous": (4, 0.10), "het_cluster": (12, 0.53), "het_model": (5, 0.07)}, marks=pytest.mark.slow
        ),
        (0.5e9 / 8, {"homogeneous": (19, 9.40), "het_cluster": (21, 6.52), "het_model": (17, 1.41)}),
    ],
)
def test_how_many_strategies_the_exact_assignment_improves(
    between_nodes: float | None, expected: dict[str, tuple[int, float]], published: Path
) -> None:
    """With the experiments' links between nodes (bytes per second), and with slow ones."""
    profiles = json.loads((published / "amp" / "layer_forward_times.json").read_text())["profiles"]
    better = {}
    for name in EXPERIMENTS:
        given = experiment(name, profiles)
        nodes = [replace(node, inter_bytes_per_s=between_nodes or node.inter_bytes_per_s) for node in given.nodes]
        found = examine(replace(given, nodes=tuple(nodes)))
        ratios = [each.predicted_pipeline_s / each.exact_pipeline_s for each in found]
        assert min(ratios) >= 1 - 1e-12
        better[name] = sum(ratio > 1 + 1e-9 for ratio in ratios), round(100 * (max(ratios) - 1), 2)
    assert better == expected


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., str]:
    """Writes files like the published ones, made of analytic times; returns their folder."""

    def write(change: dict[str, Any] | None = None, *lines: dict[str, Any] | str) -> str:
        profiles = {**analytic_profiles(), **(change or {})}
        (tmp_path / "layer_forward_times.json").write_text(json.dumps({"what": "times", "profiles": profiles}))
        text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (tmp_path / "released_predictions.jsonl").write_text("\n".join(text))
        return str(tmp_path)

    return write


LINE = {
    **{"experiment": "homogeneous", "microbatch": 1, "tp_degree": 1, "dp_degree": 8, "pp_degree": 2},
    **{"partition": [0, 15, 30], "predicted_s": 1.4, "measured_s": None},
}


@pytest.mark.parametrize(
    ("change", "lines", "message"),
    [
        ({"gpt2/G4/tmp1": [0.1] * 29}, [], "layer_forward_times.json: len(profiles.gpt2/G4/tmp1) is 29; expected 30"),
        ({"gpt2/G4/tmp1": [0.1] * 29 + ["x"]}, [], "profiles.gpt2/G4/tmp1[29] is 'x'; expected 0 or a positive number"),
        ({"gpt2/G4/tmp1": [0.1] * 29 + [-0.1]}, [],
         "profiles.gpt2/G4/tmp1[29] is -0.1; expected 0 or a positive number"),
        ({"gpt2/G4/tmp2": None}, [], "profiles.gpt2/G4/tmp2 is None; expected a list"),
        ({}, ["nonsense"], "released_predictions.jsonl: line 1: line 1 column 1 is"),
        ({}, [LINE, []], "line 2: content is []; expected an object"),
        ({}, [{**LINE, "microbatch": 3}], "line 1: strategy is 'microbatch 3, tp_degree 1"),
        ({}, [{**LINE, "dp_degree": 16}], "expected one of the 53 strategies of homogeneous"),
        ({}, [{**LINE, "dp_degree": "8"}], "line 1: dp_degree is '8'; expected an integer from 1"),
        ({}, [LINE, "", LINE],
         "line 3: strategy is 'microbatch 1, tp_degree 1, dp_degree 8, pp_degree 2'; expected no"),
        ({}, [{**LINE, "predicted_s": -1}], "line 1: predicted_s is -1"),
        ({}, [{**LINE, "measured_s": "1.2"}], "line 1: measured_s is '1.2'"),
        ({}, [{**LINE, "partition": [0, -1]}], "line 1: partition[1] is -1"),
        ({}, [{**LINE, "experiment": "other"}], "line 1: experiment is 'other'; expected homogeneous or"),
        ({}, [{key: value for key, value in LINE.items() if key != "partition"}], "line 1: partition is missing"),
    ],
)  # fmt: skip
def test_malformed_files_are_one_line(
    change: dict[str, Any], lines: list[Any], message: str, folder: Callable[..., str]
) -> None:
    with pytest.raises(InstanceError) as error:
        reproduce("amp-homogeneous", inputs=folder(change, *lines))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_malformed_files_end_the_command_with_2(folder: Callable[..., str], run: Callable[..., Any]) -> None:
    for command in ("reproduce", "solve"):
        code, out, err = run(command, "amp-homogeneous", "--inputs", folder({"gpt2/G4/tmp1": ["x"] * 30}))
        assert (code, out, err.count("\n")) == (2, "", 1) and "gpt2/G4/tmp1[0]" in err


def test_a_logged_run_is_compared_whatever_it_says(folder: Callable[..., str]) -> None:
    found = reproduce("amp-homogeneous", inputs=folder({}, LINE, {**LINE, "experiment": "het_model"})).evidence
    logged = [row for row in found.rows if row["cuts"] is not None]
    assert (found.compared, found.matched, len(logged)) == (1, 0, 1)
    assert logged[0]["predicted_met"] is False and found.tables is not None


def test_times_of_nothing_are_priced(folder: Callable[..., str]) -> None:
    nothing = {name: [0.0] * len(times) for name, times in analytic_profiles().items()}
    assert len(reproduce("amp-homogeneous", inputs=folder(nothing)).evidence.rows) == 53


def test_a_folder_without_layer_times_is_refused(tmp_path: Path) -> None:
    for ask in (lambda: reproduce("amp-homogeneous", inputs=str(tmp_path)), lambda: load_from(tmp_path)):
        with pytest.raises(UsageError, match=r"--inputs is .*layer_forward_times\.json"):
            ask()
    (tmp_path / "layer_forward_times.json").write_text('{"profiles": {}}')
    for ask in (lambda: reproduce("amp-homogeneous", inputs=str(tmp_path)), lambda: load_from(tmp_path)):
        with pytest.raises(InstanceError, match=r"profiles\.gpt2/G4/tmp1 is missing"):
            ask()


def load_from(path: Path) -> Any:
    return planner.load("amp-homogeneous", inputs=str(path))


def test_catalog_entries_take_published_times_and_tell(folder: Callable[..., str], monkeypatch: Any) -> None:
    inputs = folder({"gpt2/G4/tmp1": [0.5] * 30})
    analytic, given = planner.load("amp-homogeneous"), planner.load("amp-homogeneous", inputs=inputs)
    monkeypatch.setenv("PLANNER_PUBLISHED", inputs)
    found = planner.load("amp-homogeneous", global_batch=8)
    assert [each.options["layer-times"] for each in (analytic, given, found)] == ["analytic", "published", "published"]
    assert {layer.forward_s["G4"][1] for layer in given.layers} == {0.5}
    assert given.layers == found.layers and found.global_batch == 8
    assert planner.solve(given).options["layer-times"] == "published"


@pytest.mark.paper
@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_solving_published_experiments_finds_what_reproducing_them_does(name: str, published: Path) -> None:
    found = planner.solve(planner.load(name, inputs=str(published)), exact=True)
    rows = reproduce(name, inputs=str(published)).evidence.rows
    assert found.objective == pytest.approx(min(row["exact_joint_s"] for row in rows), rel=1e-9)


def test_printed_cuts_and_lengths_are_inverse() -> None:
    for name in EXPERIMENTS:
        layers = len(experiment(name, analytic_profiles()).layers)
        for lengths in ([layers], [1, layers - 1], [layers - 13, 13], [2, 11, layers - 13]):
            assert lengths_between(name, printed_cuts(name, lengths)) == lengths
    # Cuts on either side of layers that do nothing are one cut.
    assert lengths_between("het_model", [0, 41, 56]) == lengths_between("het_model", [0, 15, 56]) == [13, 12]


def test_the_printed_tables_are_cuts_of_the_models() -> None:
    for name, rows in PRINTED.items():
        for row in rows:
            assert row.cuts[0] == 0 and row.cuts[-1] == (56 if name == "het_model" else 30)
            assert all(before < after for before, after in pairwise(row.cuts))
            assert row.table == 10 or len(row.cuts) - 1 == row.pp_degree


def test_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: covariance 4.5, variances 4.5 and 5.
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman([1, 1], [1, 2]) != spearman([1, 1], [1, 2])


def simulated(instance: AmpInstance, plan: StrategyPlan) -> float:
    """A step under 1F1B's fixed order, a third of a stage forward, half of a cut's seconds each way."""
    layers = layer_assignment(instance, plan.degrees, plan.placement)
    ends = [sum(plan.lengths[:stage]) for stage in range(len(plan.lengths) + 1)]
    times = [sum(layers.times(stage)[start:end]) for stage, (start, end) in enumerate(pairwise(ends))]
    p, m = len(times), layers.num_microbatches
    orders = []
    for stage in range(p):
        early = min(p - 1 - stage, m)
        order = [("F", stage, j) for j in range(early)]
        for j in range(m):
            order += [("F", stage, j + early)] * (j + early < m) + [("B", stage, j)]
        orders.append(order)
    edges = [(stage, stage + 1) for stage in range(p - 1)]
    delays = {(stage, after): layers.cut_cost(ends[after] - 1, stage) / 2 for stage, after in edges}
    seconds = {"F": [time / 3 for time in times], "B": [time * 2 / 3 for time in times]}
    found = iteration_s(orders, seconds, edges, delays)
    assert found is not None
    return found + terms(instance, plan).all_reduce


def test_no_plan_of_any_strategy_is_shorter(cases: int) -> None:
    seen = 0
    for case in range(2 * cases):
        instance = random_instance(random.Random(f"shortest {case}"))
        every = [plan_from_json(instance, plan) for plan in plans(instance)]
        found = shortest_iteration(instance, Watch(Limits()))
        least = min(simulated(instance, plan) for plan in every)
        assert found.iteration_s == pytest.approx(least, rel=1e-9), case
        assert found.bound_s <= least * (1 + 1e-12) and found.bound_s >= found.iteration_s * (1 - 1e-9), case
        assert found.plan in every, case
        seen += found.simulated < len(every)
    assert seen > 0


def test_a_stopped_search_has_a_bound() -> None:
    instance = random_instance(random.Random("stopped"))
    least = shortest_iteration(instance, Watch(Limits())).iteration_s
    watch = Watch(Limits())
    watch.stop(Stop.INTERRUPTED)
    found = shortest_iteration(instance, watch)
    assert found.plan is None and found.simulated == 0 and 0 < found.bound_s <= least
