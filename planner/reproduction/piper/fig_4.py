"""Figure 4: what the cost model predicts for 16 configurations made by hand.

The figure has no digits: they are what the release's ``correlationExperiment()`` prints (commit d7fc8cf).
"""

from typing import Any

from formulations.stage_partitioning import baselines
from formulations.stage_partitioning.definition.problem import evaluate, violations
from planner.reproduction.claim import Evidence, Note, Optima, meets
from planner.reproduction.piper.inputs import PUBLISHED, bert, source

MICROBATCHES = (128, 512)
#: d, t, number of stages, and the time per sample that the release prints for each number of micro-batches.
_RELEASED = (
    (32, 1, 2, ("0.0211166", "0.0207219")),
    (16, 1, 4, ("0.021238", "0.0210344")),
    (8, 1, 8, ("0.0219414", "0.0218345")),
    (4, 1, 16, ("0.0235157", "0.0234598")),
    (2, 1, 32, ("0.0267679", "0.0267426")),
    (32, 2, 1, ("0.0254526", "0.0250685")),
    (16, 4, 1, ("0.0317259", "0.0315386")),
    (8, 8, 1, ("0.0478308", "0.047742")),
)
_RECOMPUTED = "activation recomp"


def run(inputs: str | None, note: Note, certify: str | None = None) -> Evidence:
    """Equal stages of transformer layers, the other nodes at the ends, everything recomputed."""
    rows: list[dict[str, Any]] = []
    published = source(inputs, "bert32a100")
    optima = Optima(certify)
    for place, microbatches in enumerate(MICROBATCHES):
        instance = bert(
            inputs, devices=64, memory=80e9, bandwidth="162.5GiB/s", microbatches=microbatches, cost_model="released"
        )
        note(f"{instance.name}: {microbatches} micro-batches")
        best = optima.of(instance, f"{microbatches} micro-batches")
        for d, t, stages, released in _RELEASED:
            choice = baselines.uniform_choice(instance, t, _RECOMPUTED)
            if choice is None:
                raise AssertionError(f"{instance.name} has a node without a TMPC at t = {t}")
            plan = baselines.make_plan(
                instance, baselines.equal_groups(baselines.row_of(instance), stages, apart=False), d, t, choice
            )
            rows.append(
                {
                    "microbatches": microbatches,
                    "dp_degree": d,
                    "tp_degree": t,
                    "stages": stages,
                    "released": released[place] if published == PUBLISHED else None,
                    "here": evaluate(instance, plan) if not violations(instance, plan) else None,
                    "exact": best,
                }
            )
    printed_rows = [row for row in rows if row["released"] is not None]
    matched = sum(meets(row["here"], row["released"]) for row in printed_rows)
    for row in rows:
        row["released"] = None if row["released"] is None else float(row["released"])
    return Evidence(
        tuple(rows),
        published,
        len(printed_rows),
        matched,
        (
            "released cost model; exact is the best of all plans for these devices, not of these configurations",
            optima.sentence(),
            *optima.certified(),
            "released: what the release's correlationExperiment() prints; the figure itself has no digits",
        ),
        figures=optima.figures(),
    )
