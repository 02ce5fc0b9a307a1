"""What a trainer does with its best strategy: parts of a step, rates, memory by rank, the command that exports it.

The strategy is one of `training_strategy` that the trainer can run (``realizable``), on layers in one order.
"""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from formulations.contract.figures.throughput import throughput
from formulations.stage_partitioning.definition.trainers import TRAINERS, pieces
from formulations.training_strategy import exact
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import (
    behind,
    chunk_times,
    evaluate,
    gradient_sum,
    host_time,
    iteration,
    peak_memory,
)
from formulations.training_strategy.definition.sharing import shared_in
from instances.memory_schemes import BY_TRAINER
from instances.problems.stage_partitioning import Tmpc, of_sequences
from instances.problems.training_strategy import StrategyInstance
from planner.analysis.alternatives import Alternatives
from planner.analysis.explain import NEAR_GAP, NEAR_S, Explanation
from planner.analysis.pareto import Front
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.result import Result
from planner.solving.choose import find_method
from planner.solving.solve import run
from solvers.outcome import Limits, Status

#: What ``--for`` sets, and so the export must be given as well.
_READ_AS = {"problem": "training_strategy", "linearize": "id"}
#: By type of weights, the least and the most that published layouts ran at, as a share of what is predicted for them.
#: Source: this project, docs/which-trainer.md, "Beside published layouts"; a test compares them with its tables.
MEASURED = {"bf16": (0.53, 1.89), "fp8": (0.26, 1.35), "bf16, imported": (0.99, 2.43)}
#: They were on these devices, imports with products at this share of the peak.
_MEASURED_ON, _SHARE = "h100", 0.5


@dataclass(frozen=True)
class TrainerAnswer:
    """The best strategy of a trainer in figures.

    Times are means over the devices of a pipeline, in the instance's unit, and add up to ``step``: ``compute`` with the
    sums of tensor-parallel devices, which are in the layers' times; ``recomputation``; ``communication`` in passes and
    of the sums of gradients, as far as passes do not hide it; what optimizer states on the ``host`` take; ``bubble`` is
    the rest. ``gradients`` are these sums alone, and ``hidden`` what of them is beside passes.

    ``next_plan`` is the best of other degrees that was found, ``behind`` the share that its step takes longer;
    other degrees all take ``behind_least`` longer at least (infinite: they have no plan). All are ``None`` where the
    strategy itself is not proved. ``measured`` is that of `MEASURED` for these rates; ``rates``: where they are from.

    ``memory`` has the most bytes of each rank of a pipeline. ``samples`` of a micro-batch, ``tokens`` of a sample,
    rates and ``mfu`` are ``None`` where the instance does not say what they take; these two are those of all its
    devices, used or not.
    """

    trainer: str
    plan: StrategyPlan
    unit: str
    devices: int
    num_devices: int
    microbatches: int
    samples: int | None
    tokens: int | None
    layers: int
    recomputed: int
    sharding: int
    sequences: bool
    step: float
    compute: float
    recomputation: float
    communication: float
    host: float
    gradients: float
    hidden: float
    bubble: float
    samples_per_s: float | None
    tokens_per_s_per_device: float | None
    mfu: float | None
    memory: tuple[float, ...]
    memory_limit: float
    export: str
    next_plan: StrategyPlan | None = None
    behind: float | None = None
    behind_least: float | None = None
    measured: tuple[float, float] | None = None
    rates: str = ""

    @property
    def parts(self) -> dict[str, float]:
        """The parts of a step by name."""
        names = "compute", "recomputation", "communication", *(["host"] if self.host else []), "bubble"
        return {name: getattr(self, name) for name in names}

    def figures(self) -> dict[str, Any]:
        """Those of the plan alone."""
        return {
            "bubble_share": self.bubble / self.step if self.step else 0.0,
            "peak_bytes": list(self.memory),
            "samples_per_s": self.samples_per_s,
            "tokens_per_s_per_device": self.tokens_per_s_per_device,
            "mfu": self.mfu,
            "step_parts": self.parts,
            "gradient_sums": {"exposed": self.gradients, "hidden": self.hidden},
        }

    def stats(self) -> dict[str, Any]:
        """What the JSON of the result has besides, among its stats."""
        return {
            **self.figures(),
            "next_best": {
                "degrees": None if self.next_plan is None else self.next_plan.parallelism,
                "behind": self.behind,
                "behind_least": self.behind_least,
            },
            "measured_over_predicted": self.measured,
            "rates": self.rates,
            "export": self.export,
        }


def as_settings(trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that make an instance a question about a trainer: as `planner.load` takes them.

    `UsageError` if the trainer trains nothing, or the settings say that the question is another one.
    """
    able = [name for name, each in TRAINERS.items() if each.schedules]
    if trainer not in able:
        if trainer in TRAINERS:
            rule = f"one of {', '.join(able)}; plans for what trains nothing: planner export --to {trainer}"
            raise UsageError.at("--for", trainer, rule)
        raise UsageError.unknown("--for", trainer, able)
    implied = {**_READ_AS, "realizable": trainer}
    for name, value in implied.items():
        if name != "linearize" and settings.get(name) not in (None, value):
            raise UsageError.at(f"--{name}", settings[name], f"none with --for {trainer}, which is --{name} {value}")
    chosen = {"shard_optimizer": trainer} if trainer in BY_TRAINER else {}
    chosen |= {"sharding": "any"} | ({"shard_groups": "any"} if TRAINERS[trainer].groups else {})
    given = {name.replace("-", "_") for name, value in settings.items() if value is not None}
    implied |= {name: value for name, value in chosen.items() if name not in given}
    return {**settings, **implied, "linearize": settings.get("linearize") or implied["linearize"]}


def export_command(trainer: str, instance: str, settings: Mapping[str, Any], plan: str | None) -> str:
    """The command that writes the plan for its trainer, from the file ``plan`` that ``solve --out`` makes."""
    words = ["planner", "export", plan or "PLAN.json", instance]
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            if name != "realizable" and each not in (None, False):
                words += [flag] if each is True else [flag, str(each)]
    return shlex.join([*words, "--to", trainer])


def answer(plan: StrategyPlan, instance: StrategyInstance, trainer: str, export: str = "") -> TrainerAnswer:
    """A plan in figures; ``export`` is its command."""
    flat, p = instance.flat, plan.pp_degree
    m = flat.num_microbatches // plan.dp_degree
    step, fastest, again, sent, summed, hosts = evaluate(instance, plan), [], [], [], [], []
    for chunk in plan.chunks:
        times = chunk_times(instance, plan, chunk)
        least = [_least(instance, plan, flat.index[v]) for v in chunk]
        own = math.fsum(_chosen(instance, plan, flat.index[v]).time for v in chunk) / plan.cp_degree
        fastest.append(math.fsum(least) / plan.cp_degree)
        again.append(own - fastest[-1])
        sent.append(m * (times.forward + times.backward + times.weight - own))
        summed.append(gradient_sum(instance, plan, chunk))
        hosts.append(host_time(instance, plan, chunk))
    compute, recomputation = m * math.fsum(fastest) / p, m * math.fsum(again) / p
    gradients, host = math.fsum(summed) / p, math.fsum(hosts) / p
    exposed = math.fsum(_exposed(instance, plan)) / p - host if instance.overlaps_gradients else gradients
    communication = math.fsum(sent) / p + exposed
    rates = throughput(flat, step / flat.num_microbatches)
    samples, tokens = (_count(flat.options.get(name)) for name in ("microbatch", "seq-len"))
    tokens_per_s, samples_per_s = rates.get("tokens_per_s"), rates.get("samples_per_s")
    if samples_per_s is None and tokens_per_s is not None and tokens is not None:
        samples_per_s = tokens_per_s / tokens
    counted = [piece for piece in pieces(flat, TRAINERS[trainer]) if piece.counted]
    is_again = [
        any(_chosen(instance, plan, v).time > _least(instance, plan, v) for v in piece.nodes) for piece in counted
    ]
    return TrainerAnswer(
        trainer=trainer,
        plan=plan,
        unit=flat.time_unit,
        devices=plan.num_devices,
        num_devices=flat.num_devices,
        microbatches=m,
        samples=samples,
        tokens=tokens,
        layers=len(counted),
        recomputed=sum(is_again),
        sharding=shared_in(instance, plan).level,
        sequences=plan.sequence_parallel,
        step=step,
        compute=compute,
        recomputation=recomputation,
        communication=communication,
        host=host,
        gradients=exposed,
        hidden=max(0.0, gradients - exposed),
        bubble=max(0.0, step - compute - recomputation - communication - host),
        samples_per_s=samples_per_s,
        tokens_per_s_per_device=None if tokens_per_s is None else tokens_per_s / flat.num_devices,
        mfu=rates.get("mfu_share"),
        memory=tuple(peak_memory(instance, plan)),
        memory_limit=flat.memory_bytes,
        export=export,
        **_rates(instance),
    )


def with_next_best(found: TrainerAnswer, result: Result, instance: StrategyInstance, limits: Limits) -> TrainerAnswer:
    """With the best strategy of other degrees, as far as it is found in the time that is left."""
    if result.status is not Status.OPTIMAL or not found.step:
        return found
    family = family_of(instance)
    time_s = max(NEAR_S, result.seconds)
    if limits.time_s is not None:
        time_s = min(time_s, max(0.0, limits.time_s - result.seconds))
    method = replace(find_method(family, "exact"), solve=partial(exact.solve, besides=found.plan))
    other = run(family, method, instance, replace(limits, time_s=time_s, gap=max(NEAR_GAP, limits.gap)), {})
    if other.status is Status.INFEASIBLE:
        return replace(found, behind_least=math.inf)
    behind = None if other.objective is None else max(0.0, other.objective / found.step - 1)
    least = None if other.bound is None else max(0.0, other.bound / found.step - 1)
    return replace(found, next_plan=other.own_plan, behind=behind, behind_least=least)


def explained(found: Explanation, instance: StrategyInstance, trainer: str, export: str) -> Explanation:
    """An explanation with what the trainer does with its plan, and with those of other decisions."""
    if found.result is None or found.result.own_plan is None:
        return found
    found.answer = answer(found.result.own_plan, instance, trainer, export)
    others = ((each, each.result.own_plan) for each in found.others)
    found.others = [x if plan is None else replace(x, answer=answer(plan, instance, trainer)) for x, plan in others]
    return found


def answers(found: Alternatives | Front, instance: StrategyInstance, trainer: str) -> list[TrainerAnswer]:
    """What a trainer does with each plan of alternatives, or of a front."""
    plans = found.to_json()["alternatives" if isinstance(found, Alternatives) else "front"]
    return [answer(family_of(instance).plan_from_json(instance, x["plan"]), instance, trainer) for x in plans]


def _rates(instance: StrategyInstance) -> dict[str, Any]:
    """``measured``, of which no run had states on hosts, and ``rates`` of an instance."""
    facts = instance.flat.options
    kind, share, source = str(facts.get("dtype")), facts.get("efficiency"), facts.get("rates")
    found = MEASURED.get(kind if share is None else f"{kind}, imported")
    is_measured = facts.get("hardware") == _MEASURED_ON and share in (None, _SHARE) and source is None
    is_measured = is_measured and instance.host_bandwidth is None
    words = "" if share is None else f"products at {100 * share:.3g} % of the peak"
    return {"measured": found if is_measured else None, "rates": words if source is None else f"rates of {source}"}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _exposed(instance: StrategyInstance, plan: StrategyPlan) -> list[float]:
    """What of each device's sums of gradients follows its own passes."""
    ran = iteration(instance, plan)
    found = behind(instance, plan, ran)
    own = (max((ran.end_s[action] for action in order), default=0.0) for order in ran.orders)
    return [end - passed + left for end, passed, left in zip(found.ends, own, found.left, strict=True)]


def _least(instance: StrategyInstance, plan: StrategyPlan, position: int) -> float:
    """The time of the fastest way to run a layer at the plan's degree, without what replicas send beside it."""
    return min(x.time for x in _ways(instance, plan, position))


def _chosen(instance: StrategyInstance, plan: StrategyPlan, position: int) -> Tmpc:
    layer = instance.flat.layers[position]
    return next(x for x in _ways(instance, plan, position) if x.id == plan.tmpcs[layer.id])


def _ways(instance: StrategyInstance, plan: StrategyPlan, position: int) -> tuple[Tmpc, ...]:
    return of_sequences(instance.flat.layers[position].tmpcs[plan.tp_degree], plan.sequence_parallel)
