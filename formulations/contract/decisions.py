"""Plans as decisions with finite domains: what follows from that alone, without a word on the problem.

All plans of a small instance, quantities for requirements, how plans differ, and brute force, the first witness of
every exact method. `formulations.contract.problem` makes them of a problem's ``decisions``.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from formulations.contract.alternatives import Nearby, Pin
from formulations.contract.family import Answer, Claim, Method
from formulations.contract.quantities import Domain, Quantity, names
from formulations.contract.violation import Violation
from solvers.outcome import Limits, Prover, Stop, Watch

#: Brute force takes instances with so many plans: seconds in plain Python.
MOST_PLANS = 200_000
#: Plans from one look at the watch to the next.
_POLL = 256

#: What a method honours that takes requirements on every decision (`Method.honours`); a problem puts their names here.
EVERY = frozenset({"*"})

#: By field of a plan: a list of domains for a tuple, one for each place; a range or a tuple for one value.
Domains = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Decisions:
    """The decisions of a problem.

    ``of(instance)`` are the `Domains` of its plans: whole numbers, or texts. ``plan`` is the dataclass of plans, and
    ``fields`` are its fields; those in ``single`` are no tuples, and those in ``texts`` no numbers.
    """

    plan: Callable[..., Any]
    of: Callable[[Any], Domains]
    fields: tuple[str, ...]
    single: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    def places(self, instance: Any) -> dict[tuple[str, int | None], tuple[Any, ...]]:
        """By field and place (``None``: the field is no tuple) the values that there may be."""
        found: dict[tuple[str, int | None], tuple[Any, ...]] = {}
        for field, domain in self.of(instance).items():
            if isinstance(domain, list):
                found.update(((field, place), tuple(values)) for place, values in enumerate(domain))
            else:
                found[field, None] = tuple(domain)
        return found

    def count(self, instance: Any) -> int:
        """How many plans there are before any rule."""
        return math.prod(map(len, self.places(instance).values()))

    def plan_of(self, values: Mapping[tuple[str, int | None], Any]) -> Any:
        """The plan with these values."""
        chosen: dict[str, Any] = dict.fromkeys(self.fields, ())
        for (field, place), value in values.items():
            chosen[field] = value if place is None else (*chosen[field], value)
        return self.plan(**chosen)

    def plans(self, instance: Any) -> Iterator[Any]:
        """All plans, whatever rules they break."""
        places = self.places(instance)
        return (self.plan_of(dict(zip(places, values, strict=True))) for values in product(*places.values()))

    def outside(self, instance: Any, plan: Any) -> list[Violation]:
        """The rule ``decisions``: every decision of a plan is there, and in its domain."""
        places, found = self.places(instance), []
        for field in self.fields:
            own, wanted = getattr(plan, field), sum(each == field for each, _ in places)
            if field not in self.single and len(own) != wanted:
                found.append(Violation("decisions", f"{field} has {len(own)} values; expected {wanted}"))
        for (field, place), domain in () if found else places.items():
            value = value_of(plan, field, place)
            if value not in domain:
                what = field if place is None else f"{field}({place})"
                shown = ", ".join(map(str, domain[:6])) + (", ..." if len(domain) > 6 else "")
                found.append(Violation("decisions", f"{what} is {value!r}; expected one of {shown}"))
        return found

    def vocabulary(self) -> tuple[Quantity, ...]:
        """A quantity for each field: its number at a place, or whether it has a text there."""
        return tuple(map(self._quantity, self.fields))

    def _quantity(self, field: str) -> Quantity:
        def values(instance: Any) -> list[str]:
            own = (domain for (each, _), domain in self.places(instance).items() if each == field)
            return list(dict.fromkeys(value for domain in own for value in domain))

        def of_plan(_: Any, plan: Any, *arguments: Any) -> int:
            own = getattr(plan, field)
            place, wanted = (None, arguments) if field in self.single else (arguments[0], arguments[1:])
            own = own if place is None else own[place]
            return int(own == wanted[0]) if wanted else int(own)

        places = Domain("place", lambda instance: range(len(self.of(instance)[field])))
        at = "" if field in self.single else " at a place, from 0 on"
        says = f"whether {field} has a value{at}" if field in self.texts else f"the value of {field}{at}"
        domains = (places,) * (field not in self.single) + (Domain("value", values),) * (field in self.texts)
        return Quantity(field, says, of_plan, domains, field in self.texts)

    def nearby(self) -> Nearby:
        """Every two plans are distinct."""

        def pins(instance: Any, plan: Any) -> list[Pin]:
            found = []
            for (field, place), domain in self.places(instance).items():
                own, at = value_of(plan, field, place), () if place is None else (place,)
                if len(domain) > 1 and field in self.texts:
                    found.append(Pin(field, (*at, own), 1, 0, 1))
                elif len(domain) > 1:
                    found.append(Pin(field, at, int(own), int(min(domain)), int(max(domain))))
            return found

        return Nearby("some decision", pins)


def value_of(plan: Any, field: str, place: int | None) -> Any:
    """The value of a decision in a plan."""
    return getattr(plan, field) if place is None else getattr(plan, field)[place]


def brute_force(
    decisions: Decisions,
    vocabulary: Sequence[Quantity],
    evaluate: Callable[[Any, Any], float],
    judge: Callable[[Any, Any], tuple[Violation, ...]],
) -> Method[Any, Any]:
    """The method that looks at every plan: nothing that others share, and so their first witness."""

    def solve(instance: Any, _limits: Limits, watch: Watch) -> Answer[Any]:
        for number, plan in enumerate(decisions.plans(instance)):
            if number % _POLL == 0 and watch.stopped():
                return Answer(watch.best_plan, stop=watch.why(), stats={"plans": number})
            if not judge(instance, plan):
                watch.plan(plan, evaluate(instance, plan))
        best, stats = watch.best_objective, {"plans": decisions.count(instance)}
        if best is None:
            reason = "none of all plans keeps the rules"
            return Answer(infeasible=True, stop=Stop.PROVED, proved_by=Prover.SEARCH, reason=reason, stats=stats)
        watch.bound(best)
        return Answer(watch.best_plan, best, stop=Stop.PROVED, stats=stats)

    return Method(
        "brute-force",
        Claim.EXACT,
        "every plan, one after the other",
        solve,
        supports=lambda instance: f"more than {MOST_PLANS:,} plans" if decisions.count(instance) > MOST_PLANS else None,
        limits=f"at most {MOST_PLANS:,} plans",
        effort=lambda instance: 1e3 * decisions.count(instance),
        honours=names(vocabulary),
    )
