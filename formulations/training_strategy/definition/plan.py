"""What a plan decides."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from formulations.contract.plan_exchange import exchange
from formulations.simulation.orders import SCHEDULES
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import expect
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.rules import Count, Flag, Index, NodeId, Text, member_of


@dataclass(frozen=True)
class StrategyPlan:
    """The same degrees in all stages, a schedule, and what each global stage holds.

    ``chunks[g]`` are the layers of global stage g, which device g mod p of a pipeline of p devices runs, in a V device
    min(g, 2p - 1 - g); there are p ``virtual_stages`` of them, from the input side on. ``tmpcs`` has a TMPC for every
    layer. Replicas share what ``sharding`` says (`StrategyInstance`), tensor-parallel devices the sequences between
    split products if ``sequence_parallel``. Each of d replicas is ``cp_degree`` c devices that share the tokens of a
    sample; of all d c devices ``ep_degree`` ones share the experts of a layer. The replicas share in each of
    ``shard_groups`` groups.
    """

    pp_degree: Count
    tp_degree: Count
    dp_degree: Count
    virtual_stages: Count
    schedule: Annotated[Schedule, member_of(Schedule)]
    chunks: tuple[tuple[NodeId, ...], ...]
    tmpcs: Mapping[NodeId, Text]
    sharding: Index = 0
    sequence_parallel: Flag = False
    cp_degree: Count = 1
    ep_degree: Count = 1
    shard_groups: Count = 1
    dp_outermost: Flag = False

    @property
    def replicas(self) -> int:
        """Devices that have the same weights, but for experts: d of different samples, each c of different tokens."""
        return self.dp_degree * self.cp_degree

    @property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """The chunks of each device of a pipeline, by number."""
        return SCHEDULES[self.schedule].held(self.pp_degree, self.virtual_stages)

    @property
    def num_devices(self) -> int:
        """All that the plan takes."""
        return self.pp_degree * self.tp_degree * self.replicas

    @property
    def apart(self) -> tuple[int, int]:
        """Devices from a stage to the next one, and from a replica to the next one.

        In the order tp, cp, ep, dp, pp, innermost first, as Megatron and torchtitan have it, or with pp and dp
        exchanged, each c t devices of a stage are next to each other.
        """
        own = self.tp_degree * self.cp_degree
        return (own, own * self.pp_degree) if self.dp_outermost else (own * self.dp_degree, own)

    @property
    def parallelism(self) -> dict[str, int]:
        """The degrees by name."""
        return {name: getattr(self, f"{name}_degree") for name in ("pp", "tp", "dp", "cp", "ep")}


@dataclass(frozen=True)
class _Declared(StrategyPlan):
    """A plan as files have it, with what a reader needs to run it.

    ``num_microbatches`` are those of a batch, of all replicas together (``None``: the instance's). Files that have no
    ``sharding`` have the instance's lowest level, and may say whether that is more than 0 (``sharded``).
    """

    sharding: Index | None = None  # type: ignore[assignment]
    num_microbatches: Count | None = None
    sharded: Flag | None = None


def _read(instance: StrategyInstance, declared: _Declared, where: str) -> StrategyPlan:
    """Texts become the ids of the nodes that they name; those that do not exist are left to ``violations``."""
    own = instance.flat.num_microbatches
    is_own = declared.num_microbatches in (None, own)
    expect(is_own, where, "num_microbatches", declared.num_microbatches, f"{own}, the instance's (--microbatches)")
    sharding = min(instance.levels) if declared.sharding is None else declared.sharding
    is_sharded = sharding > 0
    rule = f"{str(is_sharded).lower()}, as the instance has it (--shard-optimizer)"
    expect(declared.sharded in (None, is_sharded), where, "sharded", declared.sharded, rule)
    ids = {str(node): node for node in instance.flat.index}
    fields = {each.name: getattr(declared, each.name) for each in dataclasses.fields(StrategyPlan)}
    fields["sharding"] = sharding
    fields["chunks"] = tuple(tuple(ids.get(str(node), node) for node in chunk) for chunk in declared.chunks)
    return StrategyPlan(**fields | {"tmpcs": {ids.get(str(v), v): name for v, name in declared.tmpcs.items()}})


def _written(instance: StrategyInstance, plan: StrategyPlan) -> _Declared:
    """The plan with its TMPCs in the order of the chunks."""
    tmpcs = {node: plan.tmpcs[node] for chunk in plan.chunks for node in chunk}
    return _Declared(
        **vars(plan) | {"tmpcs": tmpcs}, num_microbatches=instance.flat.num_microbatches, sharded=plan.sharding > 0
    )


plan_from_json, plan_to_json = exchange(
    '``{"pp_degree", "tp_degree", "dp_degree", "virtual_stages", "schedule", "chunks", "tmpcs", "sharding", '
    '"sequence_parallel", "cp_degree", "ep_degree", "shard_groups", "dp_outermost", "num_microbatches", "sharded"}``.',
    _Declared,
    _read,
    _written,
)


def as_stages(plan: StrategyPlan) -> StagePlan:
    """The chunks as stages with the plan's degrees, from the input side on."""
    return StagePlan(
        tuple(
            Stage(chunk, plan.dp_degree, plan.tp_degree, {node: plan.tmpcs[node] for node in chunk})
            for chunk in plan.chunks
        )
    )
