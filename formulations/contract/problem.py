"""A problem in one file: two dataclasses, decisions with finite domains, an objective, rules, methods, examples.

All else of a `Family` follows from these: JSON, schema, validation and settings from the dataclasses; brute force,
requirements, the best plans and small random instances from the decisions. docs/adding-a-problem.md has one.
"""

import inspect
import math
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any, get_args, get_origin, get_type_hints

from formulations.contract import small_instances
from formulations.contract.decisions import EVERY, Decisions, Domains, brute_force
from formulations.contract.family import Answer, Claim, Family, Method, OwnJson
from formulations.contract.plan_exchange import exchange
from formulations.contract.quantities import OWN_VOCABULARIES, judge, names
from formulations.contract.violation import Violation
from instances.errors import InstanceError
from instances.exchange import in_files, to_json
from instances.parameters import Setting, parse_flag
from instances.rules import Identifier, Requirements
from solvers.errors import UsageError
from solvers.outcome import Limits, Stop, Watch

_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")
#: Fields that every instance has.
_COMMON = ("name", "requirements")
_PARSERS: dict[type, tuple[Callable[[Any], Any], str]] = {
    bool: (parse_flag, "true|false"),
    int: (int, "N"),
    float: (float, "X"),
    str: (str, "TEXT"),
}

#: The problems that were made in this process, by name.
KNOWN: dict[str, Family[Any, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Instance:
    """What every instance has: the name that it is reported under, and what plans must keep beside the rules."""

    name: Identifier = "instance"
    requirements: Requirements = ()


@dataclass(frozen=True)
class Problem:
    """A problem of one's own; making it makes it known in this process, under its name.

    Parameters
    ----------
    name
        The ``problem`` key of its files; no other problem has it.
    instance
        A frozen dataclass that inherits `Instance`. Its types (`instances.rules`) are its rules, and ``__post_init__``
        raises ``ValueError`` for what is wrong between its fields. A number, text or flag with a default is a setting.
    plan
        A frozen dataclass of tuples and single values, each a whole number or a text.
    decisions
        ``decisions(instance)``: the values that there may be, by field of the plan: a list of domains for a tuple, one
        for each place, else one domain.
    objective
        ``objective(instance, plan)``, to be minimised, as plainly as possible. Its docstring says what it is.
    unit
        Of the objective.
    rules
        By name ``rule(instance, plan)``: how a plan breaks it, in words; ``None`` or empty if it does not.
    methods
        Beside brute force; `formulations.modelling.decision_model.cpsat` makes one of a model's rows.
    examples
        Small instances: the blank that ``make template`` writes, and what tests begin with.

    Raises
    ------
    UsageError
        If the name or a dataclass is none.
    """

    name: str
    instance: type
    plan: type
    decisions: Callable[[Any], Domains]
    objective: Callable[[Any, Any], float]
    unit: str = ""
    rules: Mapping[str, Callable[[Any, Any], str | None]] = field(default_factory=dict)
    methods: Sequence[Method[Any, Any]] = ()
    examples: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError.at("problem", self.name, "a name of small letters, digits and underscores")
        if not (
            is_dataclass(self.instance) and isinstance(self.instance, type) and issubclass(self.instance, Instance)
        ):
            raise UsageError.at(f"{self.name}: instance", self.instance, "a dataclass that inherits Instance")
        if not (is_dataclass(self.plan) and isinstance(self.plan, type)):
            raise UsageError.at(f"{self.name}: plan", self.plan, "a dataclass")
        called = ["brute-force", *(method.name for method in self.methods)]
        if len(set(called)) < len(called):
            raise UsageError.at(f"{self.name}: methods", called, "each name once, and brute-force for none")
        in_files(problem=self.name)(self.instance)
        OWN_VOCABULARIES[self.instance] = self._vocabulary
        KNOWN[self.name] = self.family

    @cached_property
    def family(self) -> Family[Any, Any]:
        """The problem as the planner knows all of them."""
        json: OwnJson[Any] = OwnJson(self.instance, lambda _instance, _where: None)
        read_plan, write_plan = exchange(self._plan_form(), self.plan)
        witness = brute_force(self._decisions, self._vocabulary, self.evaluate, partial(judge, self.violations))
        return Family(
            name=self.name,
            recognise=json.recognise,
            read=partial(self._read, json),
            overrides=self._settings,
            check=lambda _instance, _where: None,
            to_json=to_json,
            plan_from_json=read_plan,
            plan_to_json=write_plan,
            evaluate=self.evaluate,
            violations=self.violations,
            unit=lambda _: self.unit,
            methods=(*map(self._guard, self.methods), witness),
            choose=self._choose,
            vocabulary=self._vocabulary,
            entries={
                "kind": self.instance,
                "minimises": {"": self._minimises},
                "decisions": self._decisions,
                "examples": lambda: tuple(self.examples),
                "nearby": self._decisions.nearby(),
                "mining": partial(small_instances.mining, self.instance),
            },
        )

    def evaluate(self, instance: Any, plan: Any) -> float:
        """The objective; `InstanceError` if the function fails, or returns no finite number."""
        value = self._call("objective", self.objective, instance, plan)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise InstanceError.at(self.name, "objective", value, "a finite number")
        return float(value)

    def violations(self, instance: Any, plan: Any) -> tuple[Violation, ...]:
        """What a plan breaks: ``decisions`` (each in its domain), else the rules by their names."""
        outside = self._call("decisions", self._decisions.outside, instance, plan)
        if outside:
            return tuple(outside)
        said = {name: self._call(f"rule {name}", rule, instance, plan) for name, rule in self.rules.items()}
        broken = [Violation(name, str(words)) for name, words in said.items() if words]
        return tuple(broken)

    @property
    def _minimises(self) -> str:
        """The first sentence of the objective's docstring, else its name."""
        first = (inspect.getdoc(self.objective) or "").partition(".")[0].strip()
        words = " ".join(first.split())
        return words[:1].lower() + words[1:] or self.objective.__name__.replace("_", " ")

    @cached_property
    def _decisions(self) -> Decisions:
        types = get_type_hints(self.plan)
        parts = {name: get_args(kind)[0] if get_origin(kind) is tuple else kind for name, kind in types.items()}
        single = frozenset(name for name, kind in types.items() if get_origin(kind) is not tuple)
        texts = frozenset(name for name, kind in parts.items() if kind is str)
        return Decisions(self.plan, self._domains, tuple(types), single, texts)

    def _domains(self, instance: Any) -> Domains:
        """The decisions' domains; `InstanceError` unless there are some for each field of a plan."""
        found = self._call("decisions", self.decisions, instance)
        own = [each.name for each in fields(self.plan)]
        if not isinstance(found, Mapping) or set(found) != set(own):
            raise InstanceError.at(self.name, "decisions", found, f"a mapping with {', '.join(own)}")
        for each in found.values():
            if not all(isinstance(domain, Sequence) for domain in (each if isinstance(each, list) else [each])):
                raise InstanceError.at(self.name, "decisions", each, "ranges or tuples, in a list for a tuple")
        return found

    @cached_property
    def _vocabulary(self) -> tuple[Any, ...]:
        return self._decisions.vocabulary()

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        types, found = get_type_hints(self.instance), []
        for each in fields(self.instance):
            if each.name in _COMMON or types[each.name] not in _PARSERS or each.default is MISSING:
                continue
            parse, metavar = _PARSERS[types[each.name]]
            words = f"{each.name.replace('_', ' ')} of the instance"
            found.append(Setting(each.name.replace("_", "-"), parse, words, str(each.default), metavar=metavar))
        return tuple(found)

    def _read(self, json: OwnJson[Any], content: Any, where: str, overrides: Mapping[str, Any]) -> Any:
        try:
            instance = json.read(content, where)
            return replace(instance, **{name.replace("-", "_"): value for name, value in overrides.items()})
        except InstanceError:
            raise
        except ValueError as error:  # of the dataclass itself
            raise InstanceError(" ".join(f"{where}: {error}".split())) from None

    def _plan_form(self) -> str:
        """The JSON of a plan in a line."""
        shape = {name: "v" if name in self._decisions.single else "[v, ...]" for name in self._decisions.fields}
        return f"``{{{', '.join(f'{chr(34)}{name}{chr(34)}: {each}' for name, each in shape.items())}}}``."

    def _choose(self, instance: Any, _limits: Limits, exact: bool) -> tuple[str, str]:
        """The first method that takes the instance, an exact one before the others."""
        methods = sorted(self.family.methods, key=lambda method: method.claim is not Claim.EXACT)
        fit = [
            method
            for method in methods
            if method.misfit(instance) is None and (method.claim is Claim.EXACT or not exact)
        ]
        name = (fit or methods)[0].name
        return name, f"{name} is the first method of {self.name} that takes the instance"

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except InstanceError:  # of the decisions inside, in these words already
            raise
        except Exception as error:  # whatever a function of a user's does
            raise InstanceError(
                f"{self.name}: {what} raised {words(error)}; expected a function that returns"
            ) from None

    def _guard(self, method: Method[Any, Any]) -> Method[Any, Any]:
        """The method, whose errors are reasons."""

        def solve(instance: Any, limits: Limits, watch: Watch, **options: Any) -> Answer[Any]:
            try:
                return method.solve(instance, limits, watch, **options)
            except Exception as error:
                stats, reason = {"failure": "error"}, f"{method.name} raised {words(error)}"
                return Answer(
                    watch.best_plan, watch.best_bound, stop=watch.why(Stop.COMPLETED), reason=reason, stats=stats
                )

        honours = names(self._vocabulary) if method.honours == EVERY else method.honours
        return replace(method, solve=solve, honours=honours)


def words(error: BaseException) -> str:
    """An exception in one line, with the file and line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())


def find_family(instance: Any) -> Family[Any, Any] | None:
    """The problem that was made of the class of this instance, if one was."""
    return next((each for each in KNOWN.values() if each.entries["kind"] is type(instance)), None)


def all_of(known: Iterable[Family[Any, Any]]) -> tuple[Family[Any, Any], ...]:
    """The known families, and after them the problems that were made in this process."""
    known = tuple(known)
    return (*known, *(family for name, family in KNOWN.items() if name not in {each.name for each in known}))
