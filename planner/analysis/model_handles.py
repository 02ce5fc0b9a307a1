"""Variables of an open model by what their indices mean, and amounts of it in the instance's unit.

Source: this project.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from planner.process.errors import UsageError
from solvers.inspection import Group

#: Sums of floats are that close, and models round times.
_CLOSE = 1e-9
#: Why an amount is not on the larger side.
_TOO_HIGH = ": the model holds such an amount from below only, and may count it too high"
#: So many values of a key are listed in errors.
_SHOWN = 8


def meaning_of(built: Any, group: Group, index: Any) -> Mapping[str, Any]:
    """What an index means by words: as the model declares it, or by the letters of the group's sentence."""
    declared: Mapping[str, Any] = built.meaning(group.name, index)
    letters = re.match(rf"{re.escape(group.name)}\[([^\]]*)\]", group.says)
    if declared or letters is None:
        return declared
    places = index if isinstance(index, tuple) else (index,)
    names = letters[1].split(",")
    return dict(zip(names, places, strict=True)) if len(names) == len(places) else {}


def select(built: Any, group: Group, wanted: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    """The indices of a group that have these keys, each with all that it means.

    `UsageError`: for a key that the group does not have, with those that it has; for a value that none of them has.
    """
    meant = {index: meaning_of(built, group, index) for index in built.indices(group.name)}
    known = list(dict.fromkeys(key for keys in meant.values() for key in keys))
    for key in wanted:
        if key not in known:
            rule = f"keys of {group.name}: {', '.join(known) or 'it has none'}"
            alone = keys_of_measure(built, group.name)
            rule += f"; or {' and '.join(alone)} alone" if alone else ""
            raise UsageError(f"{group.name} has no key {key}; expected {rule}")
    found = {
        index: keys for index, keys in meant.items() if all(_is(keys.get(key), value) for key, value in wanted.items())
    }
    if not found:
        given = ", ".join(f"{key}={value!r}" for key, value in wanted.items())
        key = next((key for key, value in wanted.items() if not any(_is(keys[key], value) for keys in meant.values())),
                   "")  # fmt: skip
        raise UsageError.at(group.name, given, f"{key} among {_values(meant, key)}" if key else "keys that go together")
    return found


def keys_of_measure(built: Any, name: str) -> list[str]:
    """The keys of what a model measures itself under this name; none if it does not."""
    measures = built.measures()
    return list(signature(measures[name]).parameters) if name in measures else []


def _is(value: Any, wanted: Any) -> bool:
    return wanted in value if isinstance(value, frozenset) else bool(value == wanted)


def _values(meant: Mapping[Any, Mapping[str, Any]], key: str) -> str:
    """The values of a key, in short."""
    every = [keys[key] for keys in meant.values()]
    values = list(dict.fromkeys(one for each in every for one in (each if isinstance(each, frozenset) else (each,))))
    values = sorted(values, key=lambda one: (str(type(one)), one))
    return ", ".join(map(str, values[:_SHOWN])) + ", ..." * (len(values) > _SHOWN)


def only(group: Group, found: Mapping[Any, Mapping[str, Any]]) -> Any:
    """The one index that was selected; `UsageError` where there are several, with the keys that tell them apart."""
    if len(found) == 1:
        return next(iter(found))
    first = next(iter(found.values()))
    apart = [key for key in first if len({keys[key] for keys in found.values()}) > 1]
    raise UsageError(
        f"{len(found)} variables {group.name} have these keys; expected {', '.join(apart)} as well, "
        f"or m.expression({group.name!r}, ...) for their sum"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Measured:
    """An amount of a plan, such as a stage's time, as the solver's expression; 1 of it is ``scale`` of ``unit``.

    The expression may exceed the amount where nothing holds it down. So amounts are added, multiplied by whole numbers
    from 0 on, minimised (`planner.analysis.model_view.OpenModel.minimise`), and held to a number of the unit by ``<=``:
    then every plan that keeps the row is found. `UsageError` with the reason for whatever else is tried.
    """

    own: Any
    scale: float
    unit: str
    is_whole: bool

    def __repr__(self) -> str:  # solvers show it in errors of their own
        return f"an amount in {self.unit}, which is added to such amounts and held to a number by <= only"

    def __add__(self, other: object) -> "Measured":
        if isinstance(other, Measured) and other.scale == self.scale:
            return replace(self, own=self.own + other.own)
        if isinstance(other, int) and other == 0:  # where `sum` begins
            return self
        raise self._refused("what is added", other, f"an amount in {self.unit} of the same model")

    __radd__ = __add__

    def __sub__(self, other: object) -> "Measured":
        raise self._refused("what is subtracted", other, "sums, and <= with a number", _TOO_HIGH)

    def __rsub__(self, _other: object) -> "Measured":
        raise self._refused("what is subtracted", self, "sums, and <= with a number", _TOO_HIGH)

    def __neg__(self) -> "Measured":
        return self * -1

    def __mul__(self, factor: object) -> "Measured":
        if not isinstance(factor, int) or factor < 0:
            raise self._refused("the factor", factor, "a whole number from 0 on")
        return replace(self, own=factor * self.own)

    __rmul__ = __mul__

    def __le__(self, most: object) -> Any:
        """The solver's row; ``most`` is a number of ``unit``."""
        if isinstance(most, bool) or not isinstance(most, int | float):
            why = _TOO_HIGH if isinstance(most, Measured) else ""
            raise self._refused("the bound", most, f"a number, in {self.unit}", why)
        units = most / self.scale * (1 + _CLOSE)
        return self.own <= (math.floor(units) if self.is_whole else units)

    def __ge__(self, least: object) -> Any:
        raise self._refused(">=", least, "<= with a number", _TOO_HIGH)

    def __lt__(self, most: object) -> Any:
        raise self._refused("<", most, "<= with a number", _TOO_HIGH)

    def __eq__(self, value: object) -> Any:
        raise self._refused("==", value, "<= with a number", _TOO_HIGH)

    __gt__, __ne__, __hash__ = __ge__, __eq__, None  # type: ignore[assignment]

    def _refused(self, what: str, given: object, rule: str, why: str = "") -> UsageError:
        """What is expected in place of another operand; expressions of solvers are not shown, which may be long."""
        if isinstance(given, Measured):
            return UsageError(f"{what} is an amount in {given.unit}; expected {rule}{why}")
        if isinstance(given, int | float | str):
            return UsageError.at(what, given, rule + why)
        units = f": an amount in {self.unit} and a count, as of devices, have different units"
        return UsageError(f"{what} is another expression of the model; expected {rule}{units}")
