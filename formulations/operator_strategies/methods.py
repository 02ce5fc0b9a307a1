"""The methods of operator strategies: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable

from formulations.contract.decisions import brute_force
from formulations.contract.family import Method, declarative, heuristic, lazy
from formulations.contract.quantities import judge
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import evaluate, violations
from formulations.operator_strategies.definition.quantities import DECISIONS, VOCABULARY
from formulations.operator_strategies.definition.settings import num_pairs, num_strategies
from instances.parameters import Setting, choice, count_between
from instances.problems.operator_strategies import OperatorStrategies
from solvers.outcome import Limits

_code = lazy("formulations.operator_strategies")

#: Pairs of strategies beyond which a model is too slow to build.
_CPSAT_PAIRS, _MILP_PAIRS = 2_000_000, 500_000
#: Pairs up to which CP-SAT proves most plans, or finds better ones than the descent that it begins with, in a minute.
_CHOSEN_PAIRS = 20_000


def choose(instance: OperatorStrategies, _limits: Limits, exact: bool) -> tuple[str, str]:
    """CP-SAT, unless its model is too large to build."""
    pairs = num_pairs(instance)
    if exact or pairs <= _CHOSEN_PAIRS:
        return "cpsat", f"{pairs} pairs of strategies: CP-SAT's model is small enough"
    return "descent", f"{pairs} pairs of strategies: the exact model is slow"


def _fits(most: int) -> Callable[[OperatorStrategies], str | None]:
    def supports(instance: OperatorStrategies) -> str | None:
        pairs = num_pairs(instance)
        return f"{pairs} pairs of strategies; expected at most {most}" if pairs > most else None

    return supports


def _effort(per_entry: float) -> Callable[[OperatorStrategies], float]:
    return lambda instance: per_entry * (num_strategies(instance) + num_pairs(instance))


METHODS: tuple[Method[OperatorStrategies, StrategyPlan], ...] = (
    declarative(
        _code.models.cpsat,
        "IOPDDL's problem with dominated strategies left out and costs moved to the nodes, CP-SAT",
        VOCABULARY,
        supports=_fits(_CPSAT_PAIRS),
        limits=f"at most {_CPSAT_PAIRS:,} pairs of strategies of all edges together",
        effort=_effort(1e5),
    ),
    declarative(
        _code.models.milp,
        "reconstructed after Alpa (its linearised edges, on the contest's problem), Pyomo and HiGHS",
        VOCABULARY,
        supports=_fits(_MILP_PAIRS),
        limits=f"at most {_MILP_PAIRS:,} pairs of strategies of all edges together",
        effort=_effort(1e6),
    ),
    heuristic(
        "greedy",
        "XLA's auto_sharding_solver.cc, SolveGreedy",
        _code.paper.greedy,
        options=(
            choice(
                "by",
                ("node-memory", "node-cost"),
                "what each node has least of, whatever its edges cost",
                default="node-memory",
            ),
        ),
        effort=_effort(10),
    ),
    heuristic(
        "random-path",
        "XLA's auto_sharding_solver.cc, SolveRandomPathGreedy",
        _code.paper.random_path,
        options=(choice("path", ("edge", "node"), "what is drawn at random", default="edge"),),
        effort=_effort(1e4),
    ),
    heuristic(
        "descent",
        "made for this project: forced moves, and what follows from them",
        _code.descent.solve,
        options=(Setting("rounds", count_between(1, 1000), "times that each move is tried", metavar="N", default="3"),),
        effort=_effort(1e4),
    ),
    brute_force(DECISIONS, VOCABULARY, evaluate, lambda instance, plan: judge(violations, instance, plan)),
)
