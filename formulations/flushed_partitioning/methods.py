"""The methods of flushed partitioning: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Method, declarative, exact, lazy
from formulations.contract.quantities import names
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.methods import BLOCKS, PRICES
from formulations.stage_partitioning.model_size import MAX_DOWNSETS as FEW_DOWNSETS
from formulations.stage_partitioning.model_size import (
    assignment_supports,
    blocks_effort,
    blocks_too_large,
    columns_effort,
)
from instances.problems.flushed_partitioning import FlushedInstance, Objective
from solvers.outcome import Limits

_code = lazy("formulations.flushed_partitioning")


#: More downsets than this make more pairs than are walked over in minutes.
MAX_DOWNSETS = 20_000

#: More downsets than this have more stages between them than tables have room for.
MAX_SIMULATED_DOWNSETS = 1_000

_COLUMNS = f"objective formula, graphs of at most {FEW_DOWNSETS} downsets, TMPCs of equal weights, one network"


def choose(instance: FlushedInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason."""
    if instance.objective is Objective.ITERATION:
        return "best-first", "plans in the order of a bound on their iteration, and each of them simulated"
    reason = supports(instance)
    return (
        ("labels", "recursion over downsets with the pipeline's depth in its state")
        if reason is None
        else ("cpsat", reason)
    )


#: Whether the recursion with depth is exact for an instance and has few enough pairs of downsets.
supports = _code.exact.effort.supports


def states_a_formula(instance: FlushedInstance) -> str | None:
    """Why what states a formula does not take an instance, if it does not."""
    is_simulated = instance.objective is Objective.ITERATION
    return "objective iteration; it states a formula of a batch (--objective formula)" if is_simulated else None


def _assignment_supports(instance: FlushedInstance) -> str | None:
    """Why the direct models do not take an instance, if they do not."""
    if (reason := states_a_formula(instance)) is not None:
        return reason
    if instance.devices_per_machine is not None:
        return "on machines the model would have to place the stages: labels does"
    return assignment_supports(instance.flat)


METHODS: tuple[Method[FlushedInstance, StagePlan], ...] = (
    exact(
        "labels",
        "Piper's recursion with the pipeline's depth in its state (section 6); made for this project",
        _code.exact.labels.solve,
        supports=supports,
        limits=f"objective formula, {MAX_DOWNSETS:,} downsets (fewer if memory is short), TMPCs of equal weights",
        effort=_code.exact.effort.effort,
        threads=True,
    ),
    exact(
        "best-first",
        "plans in the order of a bound on their iteration, each simulated; made for this project",
        _code.exact.iteration.solve,
        supports=_code.exact.effort.simulated_supports,
        honours=names(VOCABULARY),
        limits=f"objective iteration, graphs of at most {MAX_SIMULATED_DOWNSETS:,} downsets, TMPCs of equal weights",
        effort=_code.exact.effort.effort,
    ),
    declarative(
        _code.models.cpsat,
        "path of blocks with the pipeline's depth in CP-SAT, made for this project",
        VOCABULARY,
        supports=_assignment_supports,
        too_large=lambda instance: blocks_too_large(instance.flat),
        limits=f"objective formula, {BLOCKS}, one network",
        effort=lambda instance: blocks_effort(instance.flat),
    ),
    declarative(
        _code.models.cpsat_orders,
        "path of blocks, and when each pass of the schedule's orders ends, in CP-SAT; made for this project",
        VOCABULARY,
        supports=_code.exact.effort.passes_supports,
        too_large=_code.exact.effort.passes_too_many,
        limits=f"objective iteration, chains, {BLOCKS}, one network",
        effort=lambda instance: blocks_effort(instance.flat),
    ),
    declarative(
        _code.models.milp,
        "path of blocks with the pipeline's depth in Pyomo and HiGHS, made for this project",
        VOCABULARY,
        supports=_assignment_supports,
        too_large=lambda instance: blocks_too_large(instance.flat),
        limits=f"objective formula, {BLOCKS}, one network",
        effort=lambda instance: 3.0 * blocks_effort(instance.flat),
    ),
    declarative(
        _code.models.milp_columns,
        "a path of priced stages in Pyomo and HiGHS, made for this project",
        VOCABULARY,
        supports=_code.exact.effort.columns_supports,
        limits=_COLUMNS,
        effort=lambda instance: columns_effort(instance.flat),
        shares=PRICES,
    ),
)
