"""What differs between two plans of an instance: by layer (or whatever a plan decides about) and by stage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.files.load import family_of, validate
from planner.files.node_names import names_of_nodes
from planner.results.check import Verdict, check
from planner.types import Instance, Json, JsonObject

#: What a plan file says beside the plan.
_LABELS = ("problem", "instance", "schema_version", "options")

#: What a plan says of one thing that it decides about: ``{"stage": 2, "tmpc": "keep"}``.
Decision = dict[str, Json]


@dataclass(frozen=True)
class DecisionRow:
    """What two plans decide about one thing (``None``: one does not know it), and what of that ``differs``."""

    of: str
    name: str
    differs: list[str]
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class StagePair:
    """The numbers of a stage in two plans that hold the same nodes in it; ``None`` where a plan has no such stage."""

    first: int | None
    second: int | None
    nodes: list[Json]
    differs: list[str]


@dataclass(frozen=True)
class Difference:
    """Two plans side by side.

    ``first`` and ``second`` are what the definition says of them; ``loss`` is second / first - 1 (``None``: one of
    them breaks a rule, or the first takes no time). ``decisions`` has everything that the plans decide about, in the
    order of the first; ``stages`` has the stages of both (none where plans have no lists of nodes). ``of`` is the
    instance and ``plans`` are both plans in their JSON form: notebooks show their pictures.
    """

    problem: str
    instance: str
    unit: str
    first: Verdict
    second: Verdict
    loss: float | None
    decisions: list[DecisionRow]
    stages: list[StagePair]
    of: Any = field(default=None, repr=False, compare=False)
    plans: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def same(self) -> bool:
        """Whether the plans decide the same of everything."""
        return not any(row.differs for row in self.decisions)

    def to_json(self) -> dict[str, Json]:
        """The object that ``planner diff --json`` prints."""
        return {
            **{name: value for name, value in vars(self).items() if name not in ("of", "plans")},
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "decisions": [vars(row) for row in self.decisions],
            "stages": [vars(pair) for pair in self.stages],
            "same": self.same,
        }


def diff(
    first: JsonObject, second: JsonObject, instance: Instance, *, where: tuple[str, str] = ("first", "second")
) -> Difference:
    """Compare two plans of an instance, each in its JSON form or in a result that holds it.

    Raises
    ------
    InstanceError
        If one does not have the form of a plan (``where`` names it), or the instance breaks a rule.
    """
    instance = validate(instance)
    family, names = family_of(instance), names_of_nodes(instance)
    verdicts = [check(instance, plan, where=name) for plan, name in zip((first, second), where, strict=True)]
    plans: list[Any] = [plan_within(plan) for plan in (first, second)]
    bare = [{name: part for name, part in plan.items() if name not in _LABELS} for plan in plans]
    ones, others = (dict(decisions(plan)) for plan in bare)
    rows = [
        DecisionRow(
            of=of,
            name=names.get(of.removeprefix("node "), of),
            differs=sorted(_differing(ones.get(of, {}), others.get(of, {}))),
            first=ones.get(of),
            second=others.get(of),
        )
        for of in dict.fromkeys([*ones, *others])
    ]
    a, b = (verdict.objective for verdict in verdicts)
    return Difference(
        problem=family.name,
        instance=instance.name,
        unit=family.unit(instance),
        first=verdicts[0],
        second=verdicts[1],
        loss=b / a - 1 if a and b is not None else None,
        decisions=rows,
        stages=list(_stages(plans[0], plans[1])),
        of=instance,
        plans=(plans[0], plans[1]),
    )


def plan_within(plan: JsonObject) -> Any:
    """The plan in its JSON form, of a result that holds it."""
    return plan["plan"] if "plan" in plan and "status" in plan else plan


def decisions(plan: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Decision]]:
    """Everything that a plan decides about, and what it decides.

    >>> dict(decisions({"stages": [{"nodes": [0, 1], "dp_degree": 2, "tmpcs": {"0": "keep", "1": "drop"}}]}))
    {'node 0': {'stage': 0, 'dp_degree': 2, 'tmpc': 'keep'}, 'node 1': {'stage': 0, 'dp_degree': 2, 'tmpc': 'drop'}}
    >>> dict(decisions({"lengths": [2, 1]}))
    {'layer 0': {'stage': 0}, 'layer 1': {'stage': 0}, 'layer 2': {'stage': 1}}
    """
    plain = {name: value for name, value in plan.items() if not isinstance(value, Mapping | list | tuple)}
    if plain:
        yield f"{prefix}plan", plain
    for name, part in plan.items():
        if name == "stages":
            yield from _of_stages(part, prefix, {})
        elif name == "lengths":
            owners = (stage for stage, length in enumerate(part) for _ in range(length))
            for layer, stage in enumerate(owners):
                yield f"{prefix}layer {layer}", {"stage": stage}
        elif name == "devices":
            for stage, row in enumerate(part):
                yield from ((f"{prefix}stage {stage}, replica {r}", {"device": d}) for r, d in enumerate(row))
        elif name == "choice":
            yield from ((f"{prefix}node {node}", {"tmpc": tmpc}) for node, tmpc in part.items())
        elif name == "tiles":
            yield from ((f"{prefix}stage {t['stage']}", {k: v for k, v in t.items() if k != "stage"}) for t in part)
        elif name == "tasks":
            for stage, kind, number, start, end in part:
                yield f"{prefix}stage {stage}, {kind}{number}", {"start_s": start, "end_s": end}
        elif isinstance(part, Mapping):
            yield from decisions(part, prefix)
        elif part and name != "edges":  # edges follow from the stages
            yield f"{prefix}{name}", {"value": part}


def _of_stages(stages: Sequence[Any], prefix: str, above: Decision) -> Iterator[tuple[str, Decision]]:
    """The nodes of stages, with their stage's number and degrees; stages inside a stage count as ``0.1``."""
    for number, stage in enumerate(stages):
        at = f"{above['stage']}.{number}" if "stage" in above else number
        if not isinstance(stage, Mapping):  # operator partitioning: a list of nodes
            for node in stage:
                yield f"{prefix}node {node}", {"stage": at}
            continue
        own = {name: value for name, value in stage.items() if not isinstance(value, Mapping | list | tuple)}
        if isinstance(stage.get("devices"), list):
            own["devices"] = stage["devices"]
        decided = {**above, "stage": at, **own}
        if stage.get("inner"):
            outer = {name if name == "stage" else f"outer_{name}": value for name, value in decided.items()}
            yield from _of_stages(stage["inner"], prefix, outer)
            continue
        tmpcs = stage.get("tmpcs", {})
        for node in stage.get("nodes", ()):
            chosen = {"tmpc": tmpcs[str(node)]} if str(node) in tmpcs else {}
            yield f"{prefix}node {node}", {**decided, **chosen}


def _differing(first: Decision, second: Decision) -> Iterator[str]:
    return (name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _stages(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[StagePair]:
    """The stages of both plans, paired where they hold the same nodes; none where plans have no such stages."""
    ones, others = _by_nodes(first), _by_nodes(second)
    for nodes in dict.fromkeys([*ones, *others]):
        a, b = ones.get(nodes), others.get(nodes)
        degrees = [{k: v for k, v in found[1].items() if k != "nodes"} for found in (a, b) if found is not None]
        differs = ["nodes"] if len(degrees) < 2 else sorted(_differing(*degrees))
        yield StagePair(None if a is None else a[0], None if b is None else b[0], list(nodes), differs)


def _by_nodes(plan: Mapping[str, Any]) -> dict[tuple[Any, ...], tuple[int, Mapping[str, Any]]]:
    stages = plan.get("partition", plan).get("stages", [])
    listed = [stage if isinstance(stage, Mapping) else {"nodes": stage} for stage in stages]
    return {tuple(_nodes(stage)): (number, stage) for number, stage in enumerate(listed)}


def _nodes(stage: Mapping[str, Any]) -> list[Any]:
    return list(stage["nodes"]) if "nodes" in stage else [node for inner in stage["inner"] for node in inner["nodes"]]
