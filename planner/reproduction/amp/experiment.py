"""One of AMP's experiments: every strategy, and the tables that print some of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, layer_assignment
from formulations.layer_assignment import paper
from instances.generators.amp_experiments import Prediction, lengths_between, printed_cuts
from instances.problems.amp_strategy import AmpInstance
from planner.reproduction.amp import published
from planner.reproduction.amp.notes import sentences
from planner.reproduction.amp.strategies import Strategy, examine, lengths_by
from planner.reproduction.amp.tables import PRINTED, Printed
from planner.reproduction.claim import ClaimTables, Evidence, Note

_ANALYTIC = "analytic layer times; the published profiles are not here, so no printed number is compared"
_WORDS = (
    "cuts: match (the same numbers), equivalent (the same but for layers that do nothing: TransGAN's 1, 2, 15 to "
    "40 and 53 to 55) or mismatch"
)

#: What was logged of some strategies.
Runs = Mapping[Degrees, Prediction]


def run(name: str, inputs: str | None, note: Note) -> Evidence:
    """Every strategy of an experiment, then the rows that the paper prints."""
    given = published.read(name, inputs)
    note(f"{name}: all strategies")
    found = examine(given.instance)
    rows = [_row(given.instance.name, strategy, given.runs.get(strategy.degrees)) for strategy in found]
    met = [row["predicted_met"] for row in rows if row["predicted_met"] is not None]
    words = [row["cuts"] for row in rows if row["cuts"] is not None]
    notes = [f"{words.count('match')} of the {len(words)} published predictions have our cuts"]
    tables = _tables(given.instance, {strategy.degrees: strategy for strategy in found}, given.runs)
    return Evidence(
        tuple(rows),
        "published" if given.published else _ANALYTIC,
        compared=len(met),
        matched=sum(met),
        notes=(*(notes if met else []), *sentences(given.instance, found, rows)),
        tables=tables if given.published else None,
    )


def _row(name: str, strategy: Strategy, logged: Prediction | None) -> dict[str, Any]:
    return {
        **vars(strategy.degrees),
        "partition": printed_cuts(name, strategy.lengths),
        "predicted_s": strategy.predicted_s,
        "exact_s": strategy.exact_s,
        "exact_joint_s": strategy.exact_joint_s,
        "measured_s": None if logged is None else logged.measured_s,
        "predicted_pipeline_s": strategy.predicted_pipeline_s,
        "exact_pipeline_s": strategy.exact_pipeline_s,
        "cuts": None if logged is None else _compared(name, strategy.lengths, logged.partition),
        "predicted_met": None if logged is None else f"{strategy.predicted_s:.4f}" == f"{logged.predicted_s:.4f}",
    }


def _compared(name: str, lengths: Sequence[int], printed: Sequence[int]) -> str:
    """Our cuts beside printed ones, in one word."""
    if printed_cuts(name, lengths) == list(printed):
        return "match"
    return "equivalent" if list(lengths) == lengths_between(name, printed) else "mismatch"


def _tables(instance: AmpInstance, found: Mapping[Degrees, Strategy], runs: Runs) -> ClaimTables:
    rows = tuple(_table_row(instance, found, runs, printed) for printed in PRINTED[instance.name])
    seconds = [row["seconds_met"] for row in rows if row["seconds_met"] is not None]
    words = [row["cuts"] for row in rows]
    return ClaimTables(
        rows,
        cuts_compared=len(rows),
        cuts_matched=len(rows) - words.count("mismatch"),
        seconds_compared=len(seconds),
        seconds_matched=sum(seconds),
        notes=(
            f"{words.count('match')} of {len(rows)} printed rows have our cuts, {words.count('equivalent')} equivalent "
            f"ones and {words.count('mismatch')} others; of AMP's {len(seconds)} with our cuts and published seconds, "
            f"{sum(seconds)} have the same seconds (Megatron's are runs of their own)",
            _WORDS,
        ),
    )


def _table_row(
    instance: AmpInstance, found: Mapping[Degrees, Strategy], runs: Runs, printed: Printed
) -> dict[str, Any]:
    """A printed row beside ours: whether the cuts are the same, and the seconds where the same run was published.

    The tables leave the data-parallel degree out: it is what the others leave of the devices. Table 10 has two and four
    stages where it prints pp as 1 and 2, so the number of stages is that of its cuts.
    """
    stages, placement = len(printed.cuts) - 1, tuple(range(instance.num_devices))
    dp_degree = instance.num_devices // printed.tp_degree // stages
    degrees = Degrees(printed.microbatch, printed.tp_degree, dp_degree, stages)
    lengths = found[degrees].lengths
    if printed.method == "megatron":
        lengths = lengths_by(paper.solve_megatron, layer_assignment(instance, degrees, placement)).lengths
    logged, measured = runs.get(degrees), None
    if logged is not None and lengths_between(instance.name, logged.partition) == list(lengths):
        measured = logged.measured_s
    cuts = _compared(instance.name, lengths, printed.cuts)
    same_run = measured is not None and printed.method == "amp-released" and cuts != "mismatch"
    return {
        "table": printed.table,
        "method": printed.method,
        **vars(degrees),
        "partition": printed_cuts(instance.name, lengths),
        "printed_partition": list(printed.cuts),
        "cuts": cuts,
        "predicted_s": evaluate(instance, StrategyPlan(degrees, lengths, placement)),
        "measured_s": measured,
        "printed_s": float(printed.seconds),
        "seconds_met": f"{measured:.2f}" == printed.seconds if same_run else None,
    }
