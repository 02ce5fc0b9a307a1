"""Equation 4: how far the strategy that is best by it is from the one with the shortest simulated iteration."""

from dataclasses import replace
from typing import Any

from formulations.amp_strategy.definition.clock import clock
from formulations.amp_strategy.definition.plan import StrategyPlan
from instances.problems.amp_strategy import AmpInstance
from planner.process.errors import UsageError
from planner.reproduction.amp import published
from planner.reproduction.amp.shortest_iteration import shortest_iteration
from planner.reproduction.claim import Evidence, Note, Optima
from solvers.outcome import OPTIMAL_GAP, Limits, Watch, relative_gap

#: AMP's experiments, and samples of a step; the paper has 32, 32 and 64.
EXPERIMENTS = ("homogeneous", "het_cluster", "het_model")
BATCHES = (16, 32, 64, 128, 256)


def run(inputs: str | None, note: Note, batch: int = 256, limit: float = 30.0) -> Evidence:
    """The optimum by Equation 4 and the shortest iteration, each proved, and what the first takes on the clock."""
    batches = [each for each in BATCHES if each <= batch]
    if not batches:
        raise UsageError.at("--batch", batch, f"at least {min(BATCHES)}")
    optima, limits, rows, shortest, given = Optima(), Limits(time_s=limit), [], 0, None
    for name in EXPERIMENTS:
        given = published.read(name, inputs)
        for size in batches:
            note(f"{name}, {size} samples")
            instance = replace(given.instance, global_batch=size)
            by_formula = optima.result(instance, f"{name}, {size}", method="exhaustive", limits=limits)
            found = shortest_iteration(instance, Watch(limits))
            gap = relative_gap(found.iteration_s, found.bound_s)
            shortest += gap is not None and gap <= OPTIMAL_GAP
            rows.append(_row(name, instance, by_formula.own_plan, found.plan) | {"gap": gap})
    return Evidence(
        tuple(rows),
        "published" if given is not None and given.published else "analytic layer times",
        notes=(
            "formula: the optimum by Equation 4; best: the shortest iteration; gap: of the latter",
            "simulated: a step under 1F1B, in seconds, a third of a stage forward, then Equation 4's all-reduce",
            "lost: what the formula's optimum takes more",
            f"proved: {shortest} of {len(rows)} shortest iterations",
            optima.sentence(),
        ),
    )


def _row(name: str, instance: AmpInstance, formula: StrategyPlan | None, best: StrategyPlan | None) -> dict[str, Any]:
    """What both plans take; every setting has them."""
    assert formula is not None and best is not None
    of_formula, of_best = (clock(instance, plan).iteration_s for plan in (formula, best))
    assert of_formula is not None and of_best is not None
    return {
        "experiment": name, "batch": instance.global_batch,
        "formula_plan": says(formula), "formula_simulated_s": of_formula,
        "best_plan": says(best), "best_simulated_s": of_best,
        "lost_percent": 100 * (of_formula / of_best - 1),
    }  # fmt: skip


def says(plan: StrategyPlan) -> str:
    """Degrees, samples of a micro-batch, and layers of the stages.

    >>> from formulations.amp_strategy.definition.plan import Degrees
    >>> says(StrategyPlan(Degrees(1, 1, 4, 2), (9, 7), ()))
    'pp2 dp4 tp1 b1: 9 7'
    """
    degrees = plan.degrees
    shape = f"pp{degrees.pp_degree} dp{degrees.dp_degree} tp{degrees.tp_degree} b{degrees.microbatch}"
    return f"{shape}: {' '.join(map(str, plan.lengths))}"
