"""The best plans of a record are run in order and the fastest is kept: AMP's run(record, budget), and its record.

A trainer's model becomes an instance of AMP (`write`), whose ranked strategies become plans of the model again.

Source: AMP, Algorithm 2, lines 20 and 21 of the paper; how a model's layers become AMP's is reconstructed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from instances.problems.stage_partitioning import of_sequences
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.rules import NodeId
from planner.process.errors import UsageError
from planner.training.runtime.launch import RunError

if TYPE_CHECKING:
    from planner.training.runtime.run import Run

#: What AMP calls a kind of GPU: a trainer's model has one.
_GPU = "gpu"
_PASSES = 3.0


def write(instance: StrategyInstance) -> dict[str, Any]:
    """The instance of AMP that a trainer's model is, as a file: ``planner convert --to amp``.

    A sample is a micro-batch, and strategies run one at a time: the model was imported with its samples. A layer takes
    the least time at each degree that all layers have, a forward pass a third of it. Between layers is what crosses
    there in a forward pass. A machine is a node.

    `UsageError` if the instance's schedules lack 1F1B, which AMP's strategies run, or devices make no whole machines.
    """
    flat, chain = instance.flat, instance.chain
    if Schedule.ONE_F_ONE_B not in instance.schedules:
        raise UsageError.at("INSTANCE", f"without {Schedule.ONE_F_ONE_B}", "its schedule, which AMP's strategies run")
    size = instance.devices_per_machine or flat.num_devices
    if flat.num_devices % size:
        raise UsageError.at("INSTANCE", f"{flat.num_devices} devices", f"whole machines of {size}")
    degrees = sorted(set.intersection(*(set(layer.tmpcs) for layer in chain)))
    place = {layer.id: number for number, layer in enumerate(chain)}
    change = [0.0] * (len(chain) + 1)
    for edge in flat.edges:
        change[place[edge.source]] += edge.bytes
        change[place[edge.target]] -= edge.bytes
    unit = 1e-3 if flat.time_unit == "ms" else 1.0
    layers = tuple(
        ModelLayer(
            {_GPU: {t: unit * min(x.time for x in of_sequences(layer.tmpcs[t], False)) / _PASSES for t in degrees}},
            max(0.0, crossing),
            max(x.weight_bytes for x in layer.tmpcs[degrees[0]]) * degrees[0],
        )
        for layer, crossing in zip(chain, accumulate(change), strict=False)
    )
    inner = flat.bandwidth if instance.inner_bandwidth is None else instance.inner_bandwidth
    nodes = (Node(_GPU, inner, flat.bandwidth),) * (flat.num_devices // size)
    from planner.files.load import family_of

    made = AmpInstance(
        instance.name, nodes, size, layers, flat.num_microbatches, parameter_bytes=instance.gradients_per_weight,
        passes=_PASSES, requirements=("microbatch == 1",),
    )  # fmt: skip
    return dict(family_of(made).to_json(made))


def plans_of(record: Mapping[str, Any], instance: Any, where: str) -> list[Mapping[str, Any]]:
    """The plans of a record from the best on: those of ``planner alternatives``, or AMP's ranking of a trainer's model.

    `UsageError` if it is no such record, or AMP's and the instance is no trainer's model.
    """
    listed = record.get("alternatives")
    if isinstance(listed, list):
        return [each["plan"] for each in listed]
    ranked = record["stats"].get("ranked") if isinstance(record.get("stats"), Mapping) else None
    if record.get("problem") != "amp_strategy" or not ranked:
        raise UsageError.at("--budget", where, "what planner alternatives or solve --method amp print with --json")
    if not isinstance(instance, StrategyInstance):
        raise UsageError.at("INSTANCE", instance.name, "the training_strategy that planner convert --to amp was given")
    return [_plan_of(instance, each, where) for each in ranked]


def _plan_of(instance: StrategyInstance, row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A strategy of AMP's as a plan: 1F1B, no layer recomputes, replicas share as little as the instance lets them."""
    lengths, t = list(row["lengths"]), row["tp_degree"]
    known = sum(lengths) == len(instance.chain) and all(t in layer.tmpcs for layer in instance.chain)
    if row["microbatch"] != 1 or not known:
        raise UsageError.at("--budget", where, f"strategies of {instance.name}, micro-batches of one sample")
    ends = list(accumulate(lengths, initial=0))
    tmpcs: dict[NodeId, str] = {
        layer.id: min(of_sequences(layer.tmpcs[t], False), key=lambda x: x.time).id for layer in instance.chain
    }
    return {
        "pp_degree": row["pp_degree"],
        "tp_degree": t,
        "dp_degree": row["dp_degree"],
        "virtual_stages": 1,
        "schedule": str(Schedule.ONE_F_ONE_B),
        "chunks": [[layer.id for layer in instance.chain[x:y]] for x, y in pairwise(ends)],
        "tmpcs": {str(node): name for node, name in tmpcs.items()},
        "shard_groups": min(instance.groups(row["dp_degree"])),
    }


@dataclass(frozen=True)
class Tried:
    """A plan of the record by its number, from 1 on, with its run; or why there is none. ``is_run``: it was begun."""

    number: int
    found: "Run | None"
    reason: str = ""
    is_run: bool = True

    @property
    def seconds(self) -> float:
        """Of the iteration, with sums of gradients where these were measured; infinite of none, or of a wrong one."""
        if self.found is None or not self.found.ok:
            return math.inf
        return self.found.seconds if self.found.step_s is None else self.found.step_s

    @property
    def said(self) -> str:
        """Why it cannot be kept, in words."""
        return self.reason or ("" if math.isfinite(self.seconds) else "DIFFERENT from the unsplit model")

    @property
    def measured(self) -> str:
        """Its seconds in words."""
        return f"{self.seconds:.4g} s" if math.isfinite(self.seconds) else ""


@dataclass(frozen=True)
class Record:
    """What was run in order; at least one was."""

    tried: tuple[Tried, ...]

    @property
    def fastest(self) -> Tried:
        """The first of the least seconds, of those that were run."""
        return min((each for each in self.tried if each.found is not None), key=lambda each: each.seconds)

    @property
    def kept(self) -> "Run":
        """The run of the fastest."""
        assert self.fastest.found is not None
        return self.fastest.found

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner run --budget N --json`` prints: each plan, and the run that is kept."""
        rows = [
            {"plan": each.number, "is_run": each.is_run, "reason": each.reason or None,
             "seconds": each.seconds if math.isfinite(each.seconds) else None}
            for each in self.tried
        ]  # fmt: skip
        return {"tried": rows, "fastest": self.fastest.number, **self.kept.to_json()}


def run_in_order(plans: Sequence[Mapping[str, Any]], run: Callable[[Mapping[str, Any]], "Run"], budget: int) -> Record:
    """Run plans in order until so many were begun. One that is refused, as for memory, was not; one that failed was.

    `UsageError` if all were refused: why the last one was.
    `RunError` if all that were begun failed.
    """
    tried: list[Tried] = []
    error: Exception | None = None
    for number, plan in enumerate(plans, 1):
        if sum(each.is_run for each in tried) == budget:
            break
        try:
            tried.append(Tried(number, run(plan)))
        except (UsageError, RunError) as caught:
            tried.append(Tried(number, None, str(caught), isinstance(caught, RunError)))
            error = caught
    if all(each.found is None for each in tried) and error is not None:
        raise error
    return Record(tuple(tried))
