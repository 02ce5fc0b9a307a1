"""What can be seen of a model without running it to the end: its groups, its size, its relaxation.

`solvers.cpsat.inspection` and `solvers.milp.inspection` fill these in.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from solvers.outcome import Limits, Stop, Watch

#: In brackets after a space: ``begun[j,l]`` is no source.
_SOURCE = re.compile(r"\s+\[([^\[\]]*)\]$")

#: An offset of no more than this many of a model's units is what rounding costs.
_ROUNDING = 2.0

#: The sentence of the group ``required``.
REQUIRED = "what the instance requires in addition to the rules of its problem"


@dataclass(frozen=True)
class Group:
    """Variables or constraints of one name, whatever they are said of.

    ``kind`` is ``variable`` or ``constraint``. ``says`` is the sentence that they stand for, ``source`` the paper's
    section or equation; both may be empty.
    """

    name: str
    kind: str
    count: int
    says: str = ""
    source: str = ""


@dataclass(frozen=True)
class Range:
    """The smallest and the largest of some absolute values other than 0; both 0 where there are none."""

    least: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> "Range":
        """That of these values."""
        sizes = [abs(value) for value in values if value]
        return cls(min(sizes), max(sizes)) if sizes else cls()


@dataclass(frozen=True)
class Sizes:
    """How large a model is.

    ``nonzeros`` counts variables of linear constraints; ``matrix``, ``objective`` and ``sides`` are the ranges of their
    coefficients, of the objective's, and of right-hand sides.
    """

    binary: int
    integer: int
    continuous: int
    constraints: int
    nonzeros: int
    matrix: Range
    objective: Range
    sides: Range
    groups: tuple[Group, ...]

    @property
    def variables(self) -> int:
        """All variables."""
        return self.binary + self.integer + self.continuous

    def __str__(self) -> str:
        head = (
            f"{self.variables} variables ({self.binary} binary), {self.constraints} constraints, "
            f"{self.nonzeros} non-zeros"
        )
        return "\n".join([head, *(f"  {each.kind} {each.name} x {each.count}: {each.says}" for each in self.groups)])


@dataclass(frozen=True)
class Relaxation:
    """The linear relaxation of a model, solved.

    ``bound`` is in ``unit``, or in the model's own where that is empty (``None``: not solved, as ``reason`` says;
    ``infeasible``: neither is the model). ``fractional`` are the values of integer variables that are not whole,
    ``duals`` those of the constraints that are not 0, both by name. ``left_out`` names groups of constraints that the
    relaxation does not hold.
    """

    bound: float | None
    seconds: float
    infeasible: bool = False
    reason: str = ""
    fractional: Mapping[str, float] = field(default_factory=dict)
    duals: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    unit: str = ""

    def __str__(self) -> str:
        known = "no bound" if self.bound is None else f"bound {self.bound:.9g} {self.unit}".rstrip()
        known += f", {len(self.fractional)} variables fractional, {len(self.duals)} duals other than 0"
        why = "; infeasible" if self.infeasible else f"; {self.reason}" if self.reason else ""
        left_out = f"; without the constraints {', '.join(self.left_out)}" if self.left_out else ""
        return f"{known}{why}{left_out}; solved in {self.seconds:.3g} s"


class Inspectable:
    """What holds a solver's model as ``model``, seen through its ``inspection``, a module imported only then."""

    model: Any
    inspection: ClassVar[str]
    is_whole: ClassVar[bool] = False

    def _look(self) -> Any:
        return import_module(self.inspection)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """By name the linear expressions that requirements may speak of; none unless a model has some."""
        return {}

    def measures(self) -> Mapping[str, Callable[..., Any]]:
        """By name further linear expressions, or pairs of one and its unit; none unless a model has some."""
        return {}

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:  # noqa: ARG002 - a model may declare it
        """What the index of a variable means, by words; empty unless a model declares it."""
        return {}

    def inspected(self) -> Sizes:
        """How large the model is, by groups."""
        found: Sizes = self._look().sizes(self.model)
        return found

    def relaxation(self, limits: Limits, watch: Watch | None = None) -> Relaxation:
        """The linear relaxation (of its linear part), solved until the watch (or the limit) ends it.

        HiGHS solves it, or ``limits.solver`` where the model is one of MILPs.
        """
        found: Relaxation = self._look().relaxation(self.model, limits, watch)
        return found

    def text(self, suffix: str) -> str:
        """The model in the format of files with this suffix; ``ValueError`` names the suffixes there are."""
        return str(self._look().text(self.model, suffix))

    def file_order(self, suffix: str) -> list[str]:
        """The names of the variables in the order of a file with this suffix."""
        return list(self._look().file_order(self.model, suffix))

    def variables(self) -> Mapping[str, Any]:
        """The variables by their names in such files."""
        return dict(self._look().names(self.model))

    def file_warning(self, suffix: str) -> str:  # noqa: ARG002 - of every format
        """What solvers may be wrong about in a file with this suffix; empty if nothing."""
        return str(self._look().linear(self.model).warning)

    def objective_of(self, values: Mapping[str, float]) -> float:
        """The model's own objective of such a solution."""
        return float(self._look().linear(self.model).objective_of(values))


def why_no_bound(watch: Watch) -> str:
    """Why a relaxation has no bound where a limit or a signal came first."""
    return f"the relaxation was not solved ({watch.why(Stop.TIME_LIMIT).value})"


#: Objectives between which a model's unit is measured: above them no tolerance counts, below them floats are exact.
_MEASURED = (2.0**24, 2.0**25, 2.0**26)


def unit_of(lower_bound: Callable[[float], float], lost: float = 0.0) -> tuple[float, float] | None:
    """Scale and offset that make an objective of a model one of the instance, from what its bounds prove.

    ``lower_bound``: from a bound of the model to one of the instance (`formulations.modelling.solve_model.Model`).
    ``lost``: the share of a bound that it gives up for the solver's tolerances.
    Returns: ``None`` where it is no line: then the model's objective stands for something else, such as a number of
    devices.
    """
    low, middle, high = map(lower_bound, _MEASURED)
    scale = (high - middle) / (_MEASURED[2] - _MEASURED[1])
    if scale <= 0 or not math.isclose((middle - low) / (_MEASURED[1] - _MEASURED[0]), scale, rel_tol=1e-6):
        return None
    offset = low - scale * _MEASURED[0]
    scale /= 1.0 - lost
    return scale, offset if abs(offset) > scale * _ROUNDING else 0.0


def most_of(lower_bound: Callable[[float], float], value: float) -> float:
    """The greatest objective of a model that a plan of this value may have, from what its bounds prove (`unit_of`)."""
    (first, low), (last, high) = ((each, lower_bound(each)) for each in _MEASURED[1:])
    return first + (value - low) * (last - first) / (high - low)


def plain(name: str) -> str:
    """A name as files have it: ``holds(5,2)`` for ``holds[5,2]``, as LP files take no square brackets."""
    return name.replace("[", "(").replace("]", ")").replace(" ", "_")


def group_of(name: str) -> str:
    """``holds`` for ``holds[5,2]``."""
    return name.partition("[")[0]


def sentence(text: str | None) -> tuple[str, str]:
    """A sentence and the source in brackets at its end.

    >>> sentence("a stage fits its devices [Piper, section 3.5]")
    ('a stage fits its devices', 'Piper, section 3.5')
    """
    text = " ".join((text or "").split())
    found = _SOURCE.search(text)
    return (text[: found.start()], found.group(1)) if found else (text, "")
