"""The methods of hierarchical partitioning: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.contract.quantities import names
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.methods import KNAPSACK, LISTED, SYNC
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Objective
from solvers.outcome import Limits

_code = lazy("formulations.hierarchical_partitioning")


#: Most cells of the table of labels (downsets times sums of degrees), about 16 bytes each.
MAX_LABELS = 40_000_000

#: For the recursion on all levels: each triple of nested downsets has its row of updates, each pair a table.
MAX_LEVEL_DOWNSETS = 1000
#: Most entries of its tables, 8 bytes each.
MAX_LEVEL_CELLS = 1e8

#: For simulated plans: each pair of nested downsets is a possible superstage of many splits.
MAX_DOWNSETS = 200
#: Larger CP-SAT models prove nothing within minutes.
MAX_TERMS = 200_000

_LEVELS = (
    f"objective steady, graphs of at most {MAX_LEVEL_DOWNSETS:,} downsets with at most {MAX_LEVEL_CELLS:.0e} entries "
    "in all tables"
)


def choose(instance: HierarchicalInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason."""
    if instance.objective is Objective.ITERATION:
        return "best-first", "plans in the order of a bound on their iteration, and each of them simulated"
    if instance.upper_levels:
        return "piper-levels-exact-knapsack", "the only exact method for levels above machines"
    return "piper-hierarchical", "recursion over superstages and their splits inside a machine"


METHODS: tuple[Method[HierarchicalInstance, HierarchicalPlan], ...] = (
    exact(
        "piper-hierarchical",
        "Piper, Appendix E: recursion over superstages and their splits inside a machine, exact knapsacks",
        _code.paper.solve,
        supports=_code.effort.supports,
        limits=f"objective steady, {LISTED}, downsets times sums of data-parallel degrees at most {MAX_LABELS:,}",
        effort=_code.effort.effort,
        only_at_end=True,
    ),
    heuristic(
        "piper-levels",
        "Piper, Appendix E: recursion as printed, on any number of levels, with the knapsack of section 4",
        _code.levels.solve,
        supports=_code.effort.levels_supports,
        limits=_LEVELS,
        effort=_code.effort.levels_effort,
        options=(KNAPSACK,),
        only_at_end=True,
    ),
    exact(
        "piper-levels-exact-knapsack",
        "Piper, Appendix E: recursion as printed, on any number of levels, with exact knapsacks",
        _code.levels.solve_exact_knapsack,
        supports=_code.effort.levels_supports,
        limits=_LEVELS,
        effort=_code.effort.levels_effort,
        only_at_end=True,
    ),
    heuristic(
        "pipedream-recursion",
        "PipeDream's release, by its own costs: stages of machines, and of each machine the stages inside",
        _code.pipedream.solve,
        supports=lambda instance: _code.effort.states_another_clock(instance, levels=True),
        limits="objective steady",
        options=(SYNC,),
    ),
    exact(
        "best-first",
        "plans in the order of a bound on their iteration, each simulated; made for this project",
        _code.iteration.solve,
        supports=_code.effort.simulated_supports,
        honours=names(VOCABULARY),
        limits=f"objective iteration, two levels, few passes, at most {MAX_DOWNSETS} downsets, TMPCs of equal weights",
        effort=_code.effort.simulated_effort,
    ),
    declarative(
        _code.models.cpsat,
        "direct assignment model in CP-SAT, made for this project",
        VOCABULARY,
        supports=_code.effort.model_supports,
        limits=f"objective steady, instances whose model has at most {MAX_TERMS:,} terms",
        effort=_code.effort.model_effort,
    ),
)
