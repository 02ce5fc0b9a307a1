"""The methods of pipeline placement: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Method, declarative, heuristic, lazy
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from instances.parameters import choice
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Limits

_code = lazy("formulations.pipeline_placement")

#: Booleans of the joint model, about; beyond, it finds nothing that phases do not.
_JOINT_SIZE = 60_000
_JOINT = (
    f"instances whose model has at most {_JOINT_SIZE:,} Booleans and clauses, all but free rings of more than three "
    "replicas where tensors count as well"
)


def joint_size(instance: PlacementInstance) -> int:
    """Booleans and clauses of the joint model, about."""
    stages, devices = instance.num_stages, instance.num_devices
    replicas = instance.operators.replicas
    pairs = stages * (stages - 1) // 2 * (instance.objective != "allreduce")
    links = pairs * replicas + stages * replicas * (instance.objective != "p2p")
    volumes = pairs * sum(1 + len(tensor.targets) for tensor in instance.operators.tensors)
    return 2 * stages * len(instance.operators.operators) + volumes + links * devices * devices


def supports_joint(instance: PlacementInstance) -> str | None:
    """Whether the joint model knows the rings that are declared, and is small enough."""
    if instance.objective in ("full", "step") and instance.ring == "free" and instance.operators.replicas > 3:
        return "its rings are by replica number, and free rings of more than three are declared"
    size = joint_size(instance)
    return None if size <= _JOINT_SIZE else f"a model of size {size}; expected at most {_JOINT_SIZE}"


def choose(instance: PlacementInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The joint model where it is small or a proof is required; else both phases exactly and improved in turns."""
    refused = supports_joint(instance)
    if exact or refused is None:
        return "joint", "both phases in one model, from the best plan of one after the other"
    return "turns", f"partition and mapping in turns ({refused})"


_INSTANTIATIONS = ("objective", "auto", "p2p", "allreduce")

INSTANTIATION = choice(
    "instantiation",
    _INSTANTIATIONS,
    "what Algorithm 1 minimises: the instance's own objective, or one of section 5.2's two, auto by its ratio rule",
    default="objective",
)

METHODS: tuple[Method[PlacementInstance, PlacementPlan], ...] = (
    heuristic(
        "parmesan",
        "Parmesan, sections 4 and 5: clustering, dynamic program, refinement, then Algorithm 1",
        _code.models.two_phase.solve,
        options=(INSTANTIATION,),
        threads=True,
    ),
    heuristic(
        "decoupled",
        "the best partition for the flat network, then its best mapping",
        _code.models.two_phase.solve_decoupled,
        threads=True,
    ),
    heuristic(
        "turns",
        "moves of operators on the links of the mapping and swaps of devices, in turns",
        _code.models.two_phase.solve_turns,
        threads=True,
    ),
    declarative(
        _code.models.cpsat,
        "both phases in one CP-SAT model (the future work of Parmesan's conclusion)",
        VOCABULARY,
        name="joint",
        supports=supports_joint,
        limits=_JOINT,
        effort=lambda instance: 1e4 * joint_size(instance),
    ),
    declarative(
        _code.models.milp,
        "both phases in one MILP, Pyomo and HiGHS, made for this project",
        VOCABULARY,
        supports=supports_joint,
        limits=_JOINT,
        effort=lambda instance: 3e4 * joint_size(instance),
    ),
)
