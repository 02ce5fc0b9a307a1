"""The small examples of docs/findings.md show what it states about them."""

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

import planner
from formulations.microbatch_schedule.definition.problem import evaluate
from formulations.microbatch_schedule.methods import METHODS as SCHEDULERS
from instances.problems.microbatch_schedule import generate
from instances.problems.operator_partitioning import OperatorInstance
from planner.analysis.with_topology import load_placed
from planner.reproduction.parmesan.models import MODELS
from planner.reproduction.reproduce import reproduce
from solvers.outcome import Limits, Watch

FINDINGS = (ROOT / "docs" / "findings.md").read_text()
CLOCK = (ROOT / "docs" / "the-clock.md").read_text()


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    """The file of an instance that is printed among the findings, by its name."""

    def write(name: str) -> Path:
        shown = [
            text for text in re.findall(r"```json\n(.*?)```", FINDINGS, flags=re.DOTALL) if f'"name": "{name}"' in text
        ]
        assert len(shown) == 1 and f"`{name}.json`" in FINDINGS
        file = tmp_path / f"{name}.json"
        file.write_text(shown[0])
        return file

    return write


@pytest.mark.parametrize(
    ("name", "given", "method", "value"),
    [
        # a second replica pays under one formula only
        ("one", {"cost_model": "paper"}, "exact", 1.0), ("one", {"cost_model": "released"}, "exact", 0.75),
        # the best cut of Equation 3 is strictly worse where a shared tensor is sent once
        ("shared", {}, "dp", 5.0), ("shared", {}, "exact", 4.0), ("shared", {"count": "pair"}, "exact", 5.0),
        ("layers", {}, "amp-released", 6.0), ("layers", {}, "amp", 5.0), ("layers", {}, "exact", 5.0),
    ],
)  # fmt: skip
def test_files_of_the_page(
    name: str, given: dict[str, Any], method: str, value: float, example: Callable[[str], Path]
) -> None:
    found = planner.solve(planner.load(example(name), **given), method=method)
    assert found.objective == value and (method != "exact" or found.status == "optimal")


@pytest.mark.parametrize(("order", "time"), [({}, 0.020), ({"linearize": "lifo"}, 0.024)])
def test_a_chain_can_hide_the_best_plan(order: dict[str, Any], time: float) -> None:
    found = planner.solve(planner.load("diamond", devices=2, memory="30MB", **order), exact=True)
    assert found.objective == pytest.approx(time, rel=1e-9)


@pytest.mark.parametrize(("fix", "time", "stages"), [(False, 0.048, 2), (True, 0.0484, 1)])
def test_cuts_look_cheap_in_the_wrong_unit(fix: bool, time: float, stages: int) -> None:
    given: dict[str, Any] = {"devices": 2, "memory": "1GB", "time_unit": "ms"}
    found = planner.solve(planner.load("chain8", fix_units=fix, **given), exact=True)
    assert found.objective == pytest.approx(time, rel=1e-9) and f"{time} ms" in FINDINGS
    assert found.plan is not None and len(found.plan["stages"]) == stages


@pytest.mark.paper
def test_a_layer_fits_a_gigabyte_without_recomputation(published: Path) -> None:
    """Figure 1's caption is true of all stages but the last; the whole model needs no recomputation."""

    def best(devices: int, memory: str, **restriction: str) -> str:
        given = {"devices": devices, "memory": memory, "microbatches": 512, "bandwidth": "25GiB/s"}
        instance = planner.load(published / "piper" / "bert32a100.json", **given, **restriction)
        return str(planner.solve(instance, exact=True).status)

    layer = next(v for v in planner.load(published / "piper" / "bert32a100.json").layers if "Transformer" in v.name)
    plain = next(x for x in layer.tmpcs[1] if x.id == "vanilla")
    assert round((plain.static_bytes + plain.activation_bytes) / 1e6, 1) == 960.5
    for memory, least in (("1GB", 1922), ("1GiB", 1285)):
        assert best(least, memory, forbid_tmpc="activation recomp") == "optimal"
        assert best(least - 1, memory, forbid_tmpc="activation recomp") == "infeasible"
        assert f"{least:,} " in FINDINGS and best(2048, memory, tp="1") == "infeasible"


@pytest.mark.paper
@pytest.mark.parametrize(("fix", "time"), [(False, "63.44"), (True, "82.40")])
def test_the_unit_of_resnet(published: Path, fix: bool, time: str) -> None:
    instance = planner.load(
        published / "piper" / "resnet.json", devices=8, memory="8GiB", bandwidth="25GiB/s", fix_units=fix
    )
    assert f"{planner.solve(instance, exact=True).objective:.2f}" == time and time in FINDINGS


def by_schedule(tight: float, seeds: Sequence[int]) -> dict[str, list[float]]:
    """How far each of the paper's orders is above the proved optimum, on random graphs of unequal stages."""
    solve = {method.name: method.solve for method in SCHEDULERS}
    losses: dict[str, list[float]] = {name: [] for name in ("greedy", "1f1b", "best-of")}
    for seed in seeds:
        instance, limits = generate(4 + seed % 4, 16, tight=tight, seed=seed), Limits(time_s=60.0)
        best = solve["cpsat"](instance, limits, Watch(limits))
        assert best.plan is not None and best.bound is not None
        least = evaluate(instance, best.plan)
        assert least <= best.bound * (1 + 1e-6)
        for name, found in losses.items():
            plan = solve[name](instance, limits, Watch(limits)).plan
            assert plan is not None
            found.append(evaluate(instance, plan) / least - 1)
    return losses


def test_schedule_task_is_slow_only_as_reconstructed() -> None:
    """Backward first from the start loses; with the warm-up of footnote 2 nothing is lost."""
    losses = by_schedule(1.0, range(2))
    assert max(losses["1f1b"]) < 1e-9 < statistics.mean(losses["greedy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tight", "greedy", "strict", "best"),
    [(1.0, ("6.5 %", 15), ("0.0 %", 40), 40), (0.5, ("1.1 %", 30), ("4.2 %", 27), 39)],
)
def test_schedule_task_on_forty_graphs(
    tight: float, greedy: tuple[str, int], strict: tuple[str, int], best: int
) -> None:
    losses = by_schedule(tight, range(40))
    optimal = {name: sum(loss < 1e-9 for loss in found) for name, found in losses.items()}
    means = {name: f"{100 * statistics.mean(found):.1f} %" for name, found in losses.items()}
    print(f"\nroom {tight}: {means}, optimal {optimal}, at most { ({n: max(found) for n, found in losses.items()}) }")
    assert ((means["greedy"], optimal["greedy"]), (means["1f1b"], optimal["1f1b"])) == (greedy, strict)
    assert optimal["best-of"] == best and greedy[0] in FINDINGS


@pytest.mark.parametrize(
    ("memory", "row", "graph"),
    [
        ("1.5GB", 9.896, 7.994),
        pytest.param("15GB", 6.767, 6.942, marks=pytest.mark.slow),
        pytest.param("1.25GB", None, 9.062, marks=pytest.mark.slow),
    ],
)
def test_the_bottleneck_distinguishes_graphs_from_chains_where_memory_is_short(
    memory: str, row: float | None, graph: float
) -> None:
    """MMT on 8 devices: with memory to spare the chain's bottleneck is the smaller one, at one micro-batch."""
    found = reproduce("graphpipe-fig-6", devices="8", models="mmt", methods="pipedream,graphpipe", memory=memory)
    rows = {each["method"]: each for each in found.evidence.rows}
    ms = {name: each["tps_s"] and round(1e3 * each["tps_s"], 3) for name, each in rows.items()}
    assert ms == {"pipedream": row, "graphpipe": graph}
    whole = [each["tps_microbatch"] == each["minibatch"] for each in rows.values()]
    assert whole == [memory == "15GB"] * 2
    assert memory == "15GB" or all(f"{value:.3f} ms" in FINDINGS for value in ms.values() if value is not None)
    sentence = {"15GB": "below graphpipe's in 1 of 1", "1.5GB": "above in 1"}.get(memory)
    assert sentence is None or any(sentence in note for note in found.evidence.notes)


@pytest.mark.slow
def test_the_optimum_of_equation_1_on_mmt_is_one_micro_batch() -> None:
    """The proved optimum and not the plan of the heuristic, as both pages have it."""
    found = planner.solve(planner.load("mmt", devices=8, objective="tps"), exact=True)
    stats = found.stats
    assert (found.status, stats["microbatch"], round(1e3 * stats["tps_s"], 3)) == ("optimal", 128, 6.767)
    stated = f"runs {stats['samples_per_s']:.1f} samples/s"
    assert stated in re.sub(r"\s+", " ", FINDINGS) and stated in re.sub(r"\s+", " ", CLOCK)


def test_the_pages_have_the_same_iterations_of_stage_graphs() -> None:
    """Samples per second of the shortest iteration and of Equation 1's optimum, of the settings in the findings."""
    findings = re.findall(r"^\| ([\w -]+) (\d+) \| [\d,]+, ([\d.,]+) \| .*\*\*([\d.,]+)\*\* \|", FINDINGS, re.MULTILINE)
    clock = re.findall(
        r"^\| ([\w -]+?)(?: of GraphPipe)? \| (\d+) \| \*\*([\d.,]+)\*\*.*? \| ([\d.,]+) \|", CLOCK, re.MULTILINE
    )
    one = {(model, devices): (best, first) for model, devices, first, best in findings}
    two = {(model, devices): (best, first) for model, devices, best, first in clock}
    assert len(one) == 9 and all(one[key] == two[key] for key in one)


@pytest.mark.parametrize(
    ("reading", "stages", "depth", "iteration"), [({"rank": "memory"}, 7, 4, 0.2961), ({}, 5, 3, 0.2879)]
)
def test_less_memory_can_be_the_deeper_pipeline(
    reading: dict[str, str], stages: int, depth: int, iteration: float
) -> None:
    instance = planner.load("graphpipe-case-study", devices=8)
    sweep = planner.solve(instance, method="graphpipe", options=reading).stats["sweep"]
    row = next(each for each in sweep if each["microbatch"] == 4)
    assert (row["stages"], row["depth"], round(row["iteration_s"], 4)) == (stages, depth, iteration)
    assert round(1e3 * row["tps_s"], 4) == 2.0617 and f"{iteration} s" in FINDINGS


@lru_cache
def eight_stages(model: str) -> tuple[OperatorInstance, float]:
    """The ablation's instance of a model, and the proved optimum of its partition."""
    graph: OperatorInstance = replace(MODELS[model](), num_stages=8, replicas=4)
    best = planner.solve(graph, method="exact")
    assert best.objective is not None and best.status == "optimal"
    return graph, best.objective


def above_optimum(model: str, method: str, **options: str) -> float:
    """Percent by which a method's partition is above it."""
    graph, best = eight_stages(model)
    found = planner.solve(graph, method=method, options=options).objective
    assert found is not None
    return round(100 * (found / best - 1), 1)


@pytest.mark.parametrize(
    ("model", "variant", "percent"),
    [
        ("resnet-152", "parmesan", 6.9), ("resnet-152", "dp", 7.9),
        ("resnet-152", "cluster", 12.1), ("resnet-152", "refine", 7.6),
        pytest.param("semantic-fpn", "parmesan", 0.0, marks=pytest.mark.slow),
        pytest.param("semantic-fpn", "cluster", 15.6, marks=pytest.mark.slow),
        pytest.param("semantic-fpn", "refine", 8.4, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_each_part_of_the_partition_is_worth(model: str, variant: str, percent: float) -> None:
    assert above_optimum(model, variant) == percent


@pytest.mark.parametrize(("option", "percent"), [({"alpha": "0.01"}, 2.4), ({"clusters": "128"}, 0.8)])
def test_other_values_of_the_clustering_are_better(option: dict[str, str], percent: float) -> None:
    assert above_optimum("resnet-152", "parmesan", **option) == percent and f"{percent} %" in FINDINGS


@pytest.mark.slow
def test_figure_3_in_one_cell_of_panel_c() -> None:
    found = reproduce("parmesan-fig-3", panels="c").evidence
    assert any("panel c: of 5 cells" in note and "than consecutive mapping in 1 (" in note for note in found.notes)
    assert all(row["parmesan"] <= row["bound"] * (1 + 1e-6) for row in found.rows)


@pytest.mark.parametrize(("method", "seconds", "step"), [("decoupled", 4.0, 12.0), ("joint", 3.0, 14.0)])
def test_three_operators_cost_more_in_two_phases(
    method: str, seconds: float, step: float, example: Callable[[str], Path]
) -> None:
    """By the formula; a simulated step is even shorter."""
    found = planner.solve(planner.load(example("three")), method=method)
    assert found.objective == pytest.approx(seconds, rel=1e-9) and found.stats["step_s"] == pytest.approx(step)
    assert method == "decoupled" or found.status == "optimal"


def test_six_operators_cost_more_in_two_phases() -> None:
    phases, joint = (planner.solve(planner.load("placement"), method=method) for method in ("decoupled", "joint"))
    assert (phases.objective, joint.objective) == (pytest.approx(0.018), pytest.approx(0.052 / 3))
    assert joint.status == "optimal" and "17.333 ms jointly" in FINDINGS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "formula", "step"), [("two-level", 77.5, (15.0, 45.0)), ("dgx1", 26.0, (10.0, 20.0))]
)
def test_what_two_phases_cost(network: str, formula: float, step: tuple[float, float]) -> None:
    """By the formula, proved; the simulated step depends on which of the optimal plans is found."""
    instance = load_placed("resnet50", network, overrides={"stages": 4, "replicas": 2})
    phases, joint = (
        planner.solve(instance, method=method, limits=Limits(time_s=600.0)) for method in ("decoupled", "joint")
    )
    assert joint.status == "optimal" and phases.objective is not None and joint.objective is not None
    assert round(100 * (phases.objective / joint.objective - 1), 1) == formula
    assert step[0] < 100 * (phases.stats["step_s"] / joint.stats["step_s"] - 1) < step[1]


@pytest.mark.parametrize(
    ("order", "seconds", "is_cut_off"), [("auto", 27.654, True), ("longest-ring-first", 19.589, False)]
)
def test_how_far_a_search_comes_depends_on_its_order(order: str, seconds: float, is_cut_off: bool) -> None:
    """The torus: the same program on the same instance, each search cut off after a million devices tried."""
    instance = planner.load("torus2d", stages=16, replicas=4, objective="allreduce")
    given = {"search-timeout": "none", "search-devices": "1e6", "order": order}
    found = planner.solve(instance, method="parmesan", options=given)
    assert found.objective is not None and round(1e3 * found.objective, 3) == seconds
    assert (found.stats["searches_timed_out"] > 0) == is_cut_off and f"{seconds:.2f}" in FINDINGS
    assert found.options["order"] == order and (is_cut_off or found.status == "optimal")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "memory_gib", "percent", "d"),
    [
        ("megatron", 8, "54.5", 4), ("torchtitan", 8, "59.0", 4), ("deepspeed", 8, "46.1", 4),
        ("megatron", 80, "20.5", 64),
    ],
)  # fmt: skip
def test_trainers_lose_less_with_shared_states(trainer: str, memory_gib: int, percent: str, d: int) -> None:
    """With at most d replicas whose states take a d-th part nothing is left out that d replicas can run."""
    free: Any = planner.load("bert32", devices=64, memory=f"{memory_gib}GiB")

    def shared(parts: int) -> Any:
        layers = [
            replace(layer, tmpcs={t: tuple(
                replace(x, static_bytes=x.static_bytes - 6 * x.weight_bytes * (1 - 1 / parts)) for x in ways
            ) for t, ways in layer.tmpcs.items()})
            for layer in free.layers
        ]  # fmt: skip
        return replace(free, layers=tuple(layers), max_dp_degree=parts)

    optimum = planner.solve(free, exact=True).objective
    assert optimum == planner.solve(replace(shared(512), max_dp_degree=None), exact=True).objective
    weights = sum(layer.tmpcs[1][0].weight_bytes for layer in free.layers)
    degrees = [each for each in (1, 2, 4, 8, 16, 32, 64) if 3 * weights * each / 64 <= free.memory_bytes]
    found = {each: _realizable(shared(each), trainer) for each in degrees}
    least = min(found.values(), key=lambda each: each[0])
    assert found[d] == (least[0], d) and f"{100 * (least[0] / optimum - 1):.1f}" == percent and percent in FINDINGS


def _realizable(instance: Any, trainer: str) -> tuple[float, int]:
    result = planner.solve(replace(instance, requirements=(f"realizable({trainer})",)), exact=True)
    assert result.status == "optimal"
    return result.objective, result.plan["stages"][0]["dp_degree"]
