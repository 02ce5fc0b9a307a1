"""The methods of serving strategies: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable

from formulations.contract.decisions import brute_force
from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.contract.quantities import judge
from formulations.serving_strategy.definition.plan import ServingPlan
from formulations.serving_strategy.definition.problem import evaluate, violations
from formulations.serving_strategy.definition.quantities import DECISIONS, VOCABULARY
from formulations.serving_strategy.definition.settings import num_shapes
from instances.problems.serving_strategy import ServingInstance
from solvers.outcome import Limits

_code = lazy("formulations.serving_strategy")

#: Shapes and layers beyond which the model is too slow to build, and shapes beyond which the search is.
_MODEL_ROWS, _SHAPES = 1_000_000, 2_000_000


def choose(instance: ServingInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The search, unless there are too many shapes."""
    if exact or num_shapes(instance) <= _SHAPES:
        return "shape-search", f"{num_shapes(instance)} degrees and batches: each is looked at"
    return "vllm-guide", f"{num_shapes(instance)} degrees and batches are too many to look at"


def _fits(size: Callable[[ServingInstance], int], most: int) -> Callable[[ServingInstance], str | None]:
    return lambda instance: f"{size(instance)} of them; expected at most {most}" if size(instance) > most else None


def _num_rows(instance: ServingInstance) -> int:
    """Shapes, by kinds of layers, and what else the model has for each layer and number of replicas."""
    kinds = len(set(instance.layers)) + 2
    return num_shapes(instance) * kinds + 10 * len(instance.layers) + instance.num_devices


METHODS: tuple[Method[ServingInstance, ServingPlan], ...] = (
    exact(
        "shape-search",
        "made for this project: degrees and batches by their bounds, layers by dynamic programming",
        _code.exact.solve,
        supports=_fits(num_shapes, _SHAPES),
        limits=f"at most {_SHAPES:,} degrees and batches",
        effort=lambda instance: 1e2 * num_shapes(instance) * len(instance.layers),
    ),
    declarative(
        _code.models.cpsat,
        "made for this project: shapes and ends of stages, CP-SAT",
        VOCABULARY,
        supports=_fits(_num_rows, _MODEL_ROWS),
        limits=f"at most {_MODEL_ROWS:,} degrees and batches, by kinds of layers",
        effort=lambda instance: 1e4 * _num_rows(instance),
    ),
    heuristic(
        "vllm-guide",
        "vLLM, Parallelism and Scaling; layers as its get_pp_indices; batch reconstructed",
        _code.guide.solve,
        effort=lambda instance: 10.0 * num_shapes(instance),
    ),
    brute_force(DECISIONS, VOCABULARY, evaluate, lambda instance, plan: judge(violations, instance, plan)),
)
