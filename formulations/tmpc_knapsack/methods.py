"""The methods of tmpc knapsack: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.definition.settings import num_options
from instances.parameters import choice
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits

_code = lazy("formulations.tmpc_knapsack")

_VARIANTS = ("rerank", "sort-once", "truncating")

#: Options beyond which a solver's model is too slow to build within seconds.
_MODEL_OPTIONS = 100_000


def choose(instance: KnapsackInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """Always the exact search: where it cannot prove its plan in time, its plan and bound are still the best."""
    return "exact", f"{len(instance.nodes)} nodes: the compiled search over an expanding core"


def _fits_a_model(instance: KnapsackInstance) -> str | None:
    count = num_options(instance)
    return f"{count} options; expected at most {_MODEL_OPTIONS} (use exact)" if count > _MODEL_OPTIONS else None


def _effort(steps_per_option: float) -> Callable[[KnapsackInstance], float]:
    return lambda instance: steps_per_option * num_options(instance)


METHODS: tuple[Method[KnapsackInstance, KnapsackPlan], ...] = (
    heuristic(
        "piper",
        "Piper, section 4 (bang-per-buck)",
        _code.paper.solve,
        effort=lambda instance: float(len(instance.nodes) * num_options(instance)),
        options=(
            choice(
                "knapsack",
                _VARIANTS,
                "rerank: as published; sort-once: as released, at most 2 options of a node; truncating: caps the gain",
                default="rerank",
            ),
        ),
    ),
    exact("exact", "expanding core with a Dantzig bound (after Pisinger 1995)", _code.exact.solve, effort=_effort(100)),
    declarative(
        _code.models.cpsat,
        "multiple-choice knapsack with integer costs, CP-SAT",
        VOCABULARY,
        supports=_fits_a_model,
        limits=f"at most {_MODEL_OPTIONS:,} options of all nodes together",
        effort=_effort(1e5),
    ),
    declarative(
        _code.models.milp,
        "multiple-choice knapsack, Pyomo and HiGHS",
        VOCABULARY,
        supports=_fits_a_model,
        limits=f"at most {_MODEL_OPTIONS:,} options of all nodes together",
        effort=_effort(1e6),
    ),
)
