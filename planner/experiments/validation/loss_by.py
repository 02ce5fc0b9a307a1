"""On what a method loses: its losses by the parameters that a population draws, and how much each of them explains.

Source: Kruskal and Wallis, Use of ranks in one-criterion variance analysis (1952); the share is the eta squared of
their statistic H, (H - groups + 1) / (losses - groups), as of Tomczak and Tomczak, The need to report effect size
estimates revisited (2014).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from instances.units import size
from planner.experiments.validation.records import Fared, totals_of

#: Known of every instance beside what was drawn.
ALSO = ("size", "memory_pressure")
#: A number of more values than this is cut into so many groups of about as many instances.
_MOST_VALUES, _PARTS = 6, 4


@dataclass(frozen=True)
class LossBy:
    """How methods fared by the values of one parameter.

    ``explains``: by method the share of the variance of the ranks of its losses that lies between the groups, corrected
    for what chance would explain (at least 0); ``None``: all losses are equal, or there are as many groups.
    ``instances`` counts those of each group, by its label; ``methods`` has by method the totals of each.
    """

    parameter: str
    explains: Mapping[str, float | None]
    instances: Mapping[str, int]
    methods: Mapping[str, Mapping[str, Fared]]

    def to_json(self) -> dict[str, Any]:
        """The object of ``by`` that ``planner validate --json`` prints."""
        fared = {name: {label: dict(vars(each)) for label, each in own.items()} for name, own in self.methods.items()}
        return {**vars(self), "explains": dict(self.explains), "instances": dict(self.instances), "methods": fared}


def losses_by(records: Sequence[Mapping[str, Any]], names: Iterable[str], methods: Sequence[str]) -> tuple[LossBy, ...]:
    """The losses by each of these parameters, the one first that explains most of some method's losses.

    Instances of which it is proved that there is no plan are left out, and those of which a parameter is not known.
    """
    found = [_loss_by(records, name, methods) for name in names]
    return tuple(sorted(found, key=lambda each: -max((s for s in each.explains.values() if s is not None), default=-1)))


def value_of(record: Mapping[str, Any], name: str) -> Any:
    """What was drawn of a parameter for the instance of a record, or is known of it; ``None``: neither."""
    return record["parameters"].get(name, record.get(name) if name in ALSO else None)


def _loss_by(records: Sequence[Mapping[str, Any]], name: str, methods: Sequence[str]) -> LossBy:
    known = [each for each in records if not each["infeasible"] and value_of(each, name) is not None]
    labels = _labels(name, [value_of(each, name) for each in known])
    groups: dict[str, list[Mapping[str, Any]]] = {label: [] for label in dict.fromkeys(labels.values())}
    for each in known:
        groups[labels[value_of(each, name)]].append(each)
    return LossBy(
        name,
        {method: _explained([_losses(group, method) for group in groups.values()]) for method in methods},
        {label: len(group) for label, group in groups.items()},
        {method: {label: totals_of(group, method) for label, group in groups.items()} for method in methods},
    )


def _losses(records: Iterable[Mapping[str, Any]], method: str) -> list[float]:
    rows = (record["rows"][method] for record in records)
    return [0.0 if row["outcome"] == "optimal" else row["loss"] for row in rows if row["loss"] is not None]


def _labels(name: str, values: Sequence[Any]) -> dict[Any, str]:
    """By value the label of its group, in order; numbers of many values are cut into quantiles."""
    counts = Counter(values)
    if any(isinstance(value, str | bool) for value in counts):
        return {value: str(value) for value in sorted(counts, key=str)}
    ordered = sorted(counts)
    if len(ordered) <= _MOST_VALUES:
        return {value: _said(name, value) for value in ordered}
    before = accumulate((counts[value] for value in ordered), initial=0)
    parts: dict[int, list[Any]] = {}
    for value, below in zip(ordered, before, strict=False):
        parts.setdefault(_PARTS * below // len(values), []).append(value)
    return {
        value: "..".join(dict.fromkeys(_said(name, end) for end in (part[0], part[-1])))
        for part in parts.values()
        for value in part
    }


def _said(name: str, value: float) -> str:
    return size(value) if name == "memory" or name.endswith("bytes") else f"{value:.4g}"


def _explained(groups: Sequence[Sequence[float]]) -> float | None:
    """Eta squared of H, corrected for ties."""
    used = [group for group in groups if group]
    counts = Counter(loss for group in used for loss in group)
    count = counts.total()
    ties = sum(each**3 - each for each in counts.values())
    if len(used) < 2 or count <= len(used) or ties == count**3 - count:
        return None
    ends = accumulate(counts[loss] for loss in sorted(counts))
    rank = {loss: end - (counts[loss] - 1) / 2 for loss, end in zip(sorted(counts), ends, strict=True)}
    between = sum(sum(rank[loss] for loss in group) ** 2 / len(group) for group in used)
    h = (12 / (count * (count + 1)) * between - 3 * (count + 1)) / (1 - ties / (count**3 - count))
    return max(0.0, (h - len(used) + 1) / (count - len(used)))
