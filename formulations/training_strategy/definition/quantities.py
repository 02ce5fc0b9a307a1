"""The quantities of a plan that requirements may speak of; degrees alone decide all but one."""

from formulations.contract.quantities import Domain, Quantity
from formulations.stage_partitioning.definition.trainers import TRAINERS, Trainer, obstacles
from formulations.training_strategy.definition.plan import StrategyPlan, as_stages
from formulations.training_strategy.definition.sharing import shared_in
from instances.problems.training_strategy import StrategyInstance

_SCHEDULE = Domain("schedule", lambda instance: [str(each) for each in instance.schedules])


def realizable(instance: StrategyInstance, plan: StrategyPlan, name: str) -> int:
    """1 if a trainer of that name has the plan's schedule, cuts there, recomputes so, and shares as much."""
    trainer = TRAINERS[name]
    if plan.schedule not in trainer.schedules or not runs(trainer, instance, plan):
        return 0
    return int(not any(True for _ in obstacles(instance.flat, as_stages(plan), trainer)))


def runs(trainer: Trainer, instance: StrategyInstance, plan: StrategyPlan) -> bool:
    """Whether a trainer shares what the degrees of a plan do."""
    by = shared_in(instance, plan)
    return (
        shares(trainer, instance, plan)
        and has_whole_experts(trainer, instance, plan)
        and (trainer.sequences or not by.sequences)
        and (trainer.context or by.context == by.expert == 1)
        and (trainer.groups or by.groups == 1)
        and (trainer.orders or not plan.dp_outermost)
        and offloads(trainer, instance, plan)
    )


def shares(trainer: Trainer, instance: StrategyInstance, plan: StrategyPlan) -> bool:
    """Whether a trainer's replicas share what those of a plan do; level 0 stands for FSDP where no states are known."""
    level = shared_in(instance, plan).level
    if trainer.fsdp and level == 0 and plan.replicas > 1 and instance.sharded_per_weight:
        return plan.pp_degree * plan.tp_degree * plan.cp_degree * plan.ep_degree == 1
    return level in trainer.sharding


def offloads(trainer: Trainer, instance: StrategyInstance, plan: StrategyPlan) -> bool:
    """Whether a trainer has optimizer states on the host where a plan has: Megatron's distributed optimizer alone."""
    is_shared = shared_in(instance, plan).level > 0 or plan.replicas == 1
    return instance.host_bandwidth is None or (trainer.offloads and is_shared)


def has_whole_experts(trainer: Trainer, instance: StrategyInstance, plan: StrategyPlan) -> bool:
    """Whether experts can be whole on e t devices, as FSDP's trainers have them where a plan has parts on e times t."""
    e, whole = plan.ep_degree, plan.ep_degree * plan.tp_degree
    return not trainer.fsdp or e == 1 or all(own.experts % whole == 0 for own in instance.exchanged.values())


#: What degrees and the schedule decide.
OF_DEGREES = (
    Quantity("pp_degree", "devices of a pipeline", lambda _, plan: int(plan.pp_degree)),
    Quantity("tp_degree", "devices of a tensor-parallel group", lambda _, plan: int(plan.tp_degree)),
    Quantity("dp_degree", "replicas of the pipeline", lambda _, plan: int(plan.dp_degree)),
    Quantity("cp_degree", "devices that share the tokens of a sample", lambda _, plan: int(plan.cp_degree)),
    Quantity("ep_degree", "devices that share the experts of a layer", lambda _, plan: int(plan.ep_degree)),
    Quantity("shard_groups", "groups of replicas that share in each", lambda _, plan: int(plan.shard_groups)),
    Quantity("dp_outermost", "whether replicas are outermost", lambda _, plan: int(plan.dp_outermost), (), True),
    Quantity("virtual_stages", "chunks of layers of a device", lambda _, plan: int(plan.virtual_stages)),
    Quantity("num_stages", "chunks of layers of a pipeline", lambda _, plan: plan.pp_degree * plan.virtual_stages),
    Quantity("sharding", "what replicas share (ZeRO's stage)", lambda _, plan: int(plan.sharding)),
    Quantity(
        "sequence_parallel", "whether sequences are shared", lambda _, plan: int(plan.sequence_parallel), (), True
    ),
    Quantity("schedule", "whether it is run", lambda _, plan, name: int(plan.schedule == name), (_SCHEDULE,), True),
)
VOCABULARY = (
    *OF_DEGREES,
    Quantity(
        "realizable",
        f"whether a trainer can run the plan ({', '.join(TRAINERS)})",
        realizable,
        (Domain("trainer", lambda _: TRAINERS),),
        is_yes_no=True,
    ),
)
