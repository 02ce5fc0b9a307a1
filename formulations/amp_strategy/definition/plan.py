"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.problems.amp_strategy import AmpInstance
from instances.rules import Whole


@dataclass(frozen=True)
class Degrees:
    """Samples of a micro-batch, and the degrees of tensor, data and pipeline parallelism."""

    microbatch: Whole
    tp_degree: Whole
    dp_degree: Whole
    pp_degree: Whole

    def rank(self, stage: int, dp_rank: int, tp_rank: int) -> int:
        """Tensor-parallel ranks next to each other, then data-parallel ones, then stages."""
        return (stage * self.dp_degree + dp_rank) * self.tp_degree + tp_rank


@dataclass(frozen=True)
class StrategyPlan:
    """Degrees, layers of each stage, and the device of each rank."""

    degrees: Degrees
    lengths: tuple[int, ...]
    placement: tuple[int, ...]


@dataclass(frozen=True)
class _Declared(Degrees):
    """A plan as files have it; without ``placement`` it is Megatron's."""

    lengths: tuple[Whole, ...]
    placement: tuple[Whole, ...] | None = None


def _from_declared(instance: AmpInstance, declared: _Declared, _: str) -> StrategyPlan:
    degrees = Degrees(declared.microbatch, declared.tp_degree, declared.dp_degree, declared.pp_degree)
    megatron = tuple(range(instance.num_devices))
    return StrategyPlan(degrees, declared.lengths, megatron if declared.placement is None else declared.placement)


plan_from_json, plan_to_json = exchange(
    "Degrees, ``lengths`` of the stages, and ``placement``: the device of each rank.",
    _Declared,
    _from_declared,
    lambda _, plan: _Declared(**vars(plan.degrees), lengths=plan.lengths, placement=plan.placement),
)
