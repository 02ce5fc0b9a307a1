"""One of AMP's experiments: every strategy, and the tables that print some of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.amp_strategy.problem import Degrees, StrategyPlan, evaluate, layer_assignment, strategies
from formulations.amp_strategy.search import Assign, released
from formulations.amp_strategy.simulate import makespan_s
from formulations.layer_assignment import exact, paper
from formulations.layer_assignment import problem as assignment
from formulations.layer_assignment.problem import LayerPlan
from instances.amp_experiments import analytic_profiles, experiment, lengths_between, printed_cuts
from instances.amp_strategy import AmpInstance
from instances.errors import InstanceError
from instances.layer_assignment import LayerAssignmentInstance
from planner.claims.amp_tables import TABLES, Printed
from planner.claims.claim import Evidence, Note
from planner.errors import UsageError
from planner.loading import published_file, read_content
from planner.reading import parse_json, read_text
from solvers.outcome import Limits, Watch

_PROFILES, _PREDICTIONS = "layer_forward_times.json", "released_predictions.jsonl"
_ANALYTIC = "analytic layer times; the published profiles are not here, so no printed number is compared"
#: A slow network between nodes: 0.5 Gbit/s.
_SLOW_BYTES_PER_S = 0.5e9 / 8
_CLEARLY = 1 + 1e-9


@dataclass(frozen=True)
class Strategy:
    """What the three layer assignments make of some degrees with Megatron's placement.

    Seconds of a step as estimate() has them; ``released_pipeline_s`` and ``exact_pipeline_s`` are without the
    all-reduce, which neither of the two assignments looks at.
    """

    degrees: Degrees
    lengths: tuple[int, ...]
    predicted_s: float
    exact_s: float
    exact_joint_s: float
    released_pipeline_s: float
    exact_pipeline_s: float


def run(name: str, inputs: str | None, note: Note) -> Evidence:
    """Every strategy of an experiment, then the rows that the paper prints."""
    profiles, predictions = _published(name, inputs)
    instance = experiment(name, profiles or analytic_profiles())
    note(f"{name}: all strategies")
    found = examine(instance)
    rows = [_row(name, strategy, predictions.get(strategy.degrees)) for strategy in found]
    compared, matched = len(predictions), 0
    by_degrees = {strategy.degrees: strategy for strategy in found}
    for degrees, published in predictions.items():
        matched += _is_met(name, by_degrees[degrees], published)
    sentences = [f"{matched} of {compared} published predictions: same cuts, and seconds to the printed digits"]
    if profiles is None:
        sentences = []
    else:
        tables = [_table_row(instance, by_degrees, predictions, printed) for printed in TABLES[name]]
        rows += tables
        compared += len(tables)
        matched += sum(row["match"] for row in tables)
        seconds = [row["match_s"] for row in tables if row["match_s"] is not None]
        sentences += [
            f"{sum(row['match'] for row in tables)} of {len(tables)} rows of the tables have our cuts; "
            f"of {len(seconds)} whose seconds are in the published file, too, {sum(seconds)} are the same"
        ]
    sentences += _sentences(instance, found, rows)
    return Evidence(tuple(rows), "published" if profiles else _ANALYTIC, compared, matched, tuple(sentences))


def examine(instance: AmpInstance) -> list[Strategy]:
    """All strategies with Megatron's placement, in the order of the released prediction."""
    found = []
    for degrees in strategies(instance):
        if degrees.pp_degree > len(instance.layers):
            continue
        placement = tuple(range(instance.num_devices))
        whole = layer_assignment(instance, degrees, placement)
        pipeline = replace(whole, ring_s_per_parameter=())
        old, best = _lengths(released(instance), pipeline), _lengths(exact.solve, pipeline)
        joint = _lengths(exact.solve, whole)
        slip = layer_assignment(instance, degrees, placement, closing_link_only=True)
        found.append(
            Strategy(
                degrees,
                old.lengths,
                assignment.evaluate(slip, old),
                assignment.evaluate(whole, best),
                assignment.evaluate(whole, joint),
                assignment.evaluate(pipeline, old),
                assignment.evaluate(pipeline, best),
            )
        )
    return sorted(found, key=lambda strategy: strategy.predicted_s)


def _lengths(assign: Assign, layers: LayerAssignmentInstance) -> LayerPlan:
    plan = assign(layers, Limits(), Watch()).plan
    if plan is None:
        raise AssertionError(f"{layers.name} has no layer assignment")
    return plan


def _published(name: str, inputs: str | None) -> tuple[Any, dict[Degrees, Mapping[str, Any]]]:
    """The published layer times (``None``: none here), and what was published of the experiment's strategies."""
    path = published_file(_PROFILES, inputs)
    if path is None:
        if inputs is not None:
            rule = f"a folder that holds {_PROFILES} or amp{os.sep}{_PROFILES}"
            raise UsageError.at("--inputs", inputs, rule)
        return None, {}
    content = read_content(path)
    profiles = content.get("profiles") if isinstance(content, dict) else None
    try:
        experiment(name, profiles or {})
    except (KeyError, IndexError, TypeError) as error:
        raise InstanceError.at(str(path), "profiles", str(error), "the layer times of all models and GPUs") from None
    logged = published_file(_PREDICTIONS, inputs)
    if logged is None:
        return profiles, {}
    rows = [parse_json(line, str(logged)) for line in read_text(logged).splitlines() if line.strip()]
    try:
        own = [row for row in rows if row["experiment"] == name]
        return profiles, {
            Degrees(row["microbatch"], row["tp_degree"], row["dp_degree"], row["pp_degree"]): row for row in own
        }
    except (KeyError, TypeError) as error:
        raise InstanceError.at(str(logged), "a line", str(error), "an experiment, degrees, cuts and seconds") from None


def _is_met(name: str, strategy: Strategy, published: Mapping[str, Any]) -> bool:
    same = printed_cuts(name, strategy.lengths) == published["partition"]
    return same and f"{strategy.predicted_s:.4f}" == f"{published['predicted_s']:.4f}"


def _row(name: str, strategy: Strategy, published: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "table": None,
        "method": "amp-released",
        **_shown(strategy.degrees),
        "partition": printed_cuts(name, strategy.lengths),
        "predicted_s": strategy.predicted_s,
        "exact_s": strategy.exact_s,
        "exact_joint_s": strategy.exact_joint_s,
        "measured_s": None if published is None else published["measured_s"],
        "printed": None,
        "printed_s": None,
        "match": None if published is None else _is_met(name, strategy, published),
        "match_s": None,
    }


def _shown(degrees: Degrees) -> dict[str, int]:
    return {
        "microbatch": degrees.microbatch,
        "tp_degree": degrees.tp_degree,
        "dp_degree": degrees.dp_degree,
        "pp_degree": degrees.pp_degree,
    }


def _table_row(
    instance: AmpInstance,
    found: Mapping[Degrees, Strategy],
    predictions: Mapping[Degrees, Mapping[str, Any]],
    printed: Printed,
) -> dict[str, Any]:
    """A printed row beside ours: whether the cuts are the same, and the seconds where the same run was published.

    The tables leave the data-parallel degree out: it is what the others leave of the devices. Table 10 has two and four
    stages where it prints pp as 1 and 2, so the number of stages is that of its cuts.
    """
    stages = len(printed.cuts) - 1
    devices = instance.num_devices // printed.tp_degree
    degrees = Degrees(printed.microbatch, printed.tp_degree, devices // stages, stages)
    strategy = found[degrees]
    layers = layer_assignment(instance, degrees, tuple(range(instance.num_devices)))
    megatron = _lengths(paper.solve_megatron, layers).lengths
    lengths = strategy.lengths if printed.method == "amp-released" else megatron
    published = predictions.get(degrees)
    measured = None
    if published is not None and lengths_between(instance.name, published["partition"]) == list(lengths):
        measured = published["measured_s"]
    plan = StrategyPlan(degrees, lengths, tuple(range(instance.num_devices)))
    return {
        "table": printed.table,
        "method": printed.method,
        **_shown(degrees),
        "partition": printed_cuts(instance.name, lengths),
        "predicted_s": evaluate(instance, plan),
        "exact_s": strategy.exact_s,
        "exact_joint_s": strategy.exact_joint_s,
        "measured_s": measured,
        "printed": list(printed.cuts),
        "printed_s": float(printed.seconds),
        "match": list(lengths) == lengths_between(instance.name, printed.cuts),
        "match_s": None if measured is None else f"{measured:.2f}" == printed.seconds,
    }


def _sentences(instance: AmpInstance, found: Sequence[Strategy], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    slow_nodes = tuple(replace(node, inter_bytes_per_s=_SLOW_BYTES_PER_S) for node in instance.nodes)
    slow_instance = replace(instance, nodes=slow_nodes)
    slow = examine(slow_instance)
    pairs = [
        (row["predicted_s"], row["measured_s"])
        for row in rows
        if row["measured_s"] is not None and row["table"] is None
    ]
    sentences = [
        "measured_s: one run of the authors, where it is in the published file; - where it is not",
        f"{len(found)} strategies. {_improvement(found)}",
        f"With 0.5 Gbit/s between nodes: {_improvement(slow)}",
        "Equation 4 is what a simulation gives where links carry any number of messages at once. With one at a time "
        f"{_equation_4(instance, found)}; with 0.5 Gbit/s between nodes {_equation_4(slow_instance, slow)}",
    ]
    if len(pairs) > 2:
        correlation = spearman([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        sentences.append(f"Spearman correlation of predicted and measured: {correlation:.3f} over {len(pairs)} rows")
    return sentences


def _improvement(found: Sequence[Strategy]) -> str:
    pipelines = [each.released_pipeline_s / each.exact_pipeline_s for each in found]
    wholes = [each.predicted_s / each.exact_joint_s for each in found]
    better = [sum(ratio > _CLEARLY for ratio in ratios) for ratios in (pipelines, wholes)]
    return (
        f"Equation 4 alone: the exact assignment is better in {better[0]}, by up to "
        f"{100 * (max(pipelines) - 1):.2f} %; with the all-reduce inside: in {better[1]}, by up to "
        f"{100 * (max(wholes) - 1):.2f} %"
    )


def _equation_4(instance: AmpInstance, found: Sequence[Strategy]) -> str:
    """How far Equation 4 is from a pipeline whose links carry one message at a time (section 6.1)."""
    short = []
    for each in found:
        layers = layer_assignment(instance, each.degrees, tuple(range(instance.num_devices)))
        layers = replace(layers, ring_s_per_parameter=())
        ends = assignment.cuts(LayerPlan(each.lengths))
        stages = [sum(layers.layer_time_s[ends[j] : ends[j + 1]]) for j in range(len(each.lengths))]
        links = [layers.cut_cost(ends[j + 1] - 1, j) for j in range(len(each.lengths) - 1)]
        simulated = makespan_s(stages, links, layers.num_microbatches, one_message_at_a_time=True)
        short.append(simulated / each.released_pipeline_s - 1)
    off = sum(share > 1e-9 for share in short)
    return f"it is too low in {off} of {len(found)} strategies, by up to {100 * max(short):.2f} %"


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; ties get their mean rank. NaN if one of the two is constant."""
    ranks = [_ranks(values) for values in (first, second)]
    means = [sum(each) / len(each) for each in ranks]
    spread = [[rank - mean for rank in each] for each, mean in zip(ranks, means, strict=True)]
    norm = (sum(x * x for x in spread[0]) * sum(y * y for y in spread[1])) ** 0.5
    return sum(x * y for x, y in zip(*spread, strict=True)) / norm if norm else float("nan")


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
