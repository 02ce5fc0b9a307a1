"""What single fields of an instance may hold: types with a rule, one for files and for Python.

The classes in this package declare their fields with these types. `instances.validation` holds values to them; nothing
else here needs pydantic, so that an instance can be built without importing it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any

from instances.parameters import AMOUNTS, MAX_AMOUNT, MAX_COUNT, MIN_AMOUNT, POSITIVE, as_int
from instances.units import size

#: As ``str.isprintable`` has it: neither controls nor separators, but for the space.
_PRINTABLE = r"^(?:[^\p{C}\p{Z}]| )*$"


#: Names of dataclasses that pydantic puts into the places of errors, where a value is of one of several.
TAGS: set[str] = set()


class Rule:
    """A rule in words, and pydantic's schema of the values that keep it.

    ``build(core_schema, schema_of)`` makes it; left out, it is that of the type. Whatever is wrong with the value is
    reported in these words, but with ``of_parts`` by what is wrong with its parts.
    """

    def __init__(
        self, text: str, build: Callable[[Any, Callable[[Any], Any]], Any] | None = None, *, of_parts: bool = False
    ) -> None:
        self.text = text
        self._build = build
        self._of_parts = of_parts

    def __repr__(self) -> str:
        return f"Rule({self.text!r})"

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        schema = handler(source) if self._build is None else self._build(core_schema, handler)
        if self._of_parts:
            return schema
        return core_schema.custom_error_schema(schema, "rule", custom_error_message=self.text)

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """The rule in JSON Schema: its words as description, and as much of it as JSON Schema can say."""
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            schema = dict(handler(core))
        except PydanticInvalidForJsonSchema:  # a function tests it
            schema = {}
        for part in (schema, *schema.get("anyOf", ())):
            part.pop("pattern", None)  # of Unicode's classes, which many validators do not know
        return {**schema, "description": self.text}


def _positive(core: Any, _: Any) -> Any:
    return core.float_schema(strict=True, ge=MIN_AMOUNT, le=MAX_AMOUNT, allow_inf_nan=False)


def _amounts(core: Any, schema_of: Any) -> Any:
    nothing = core.float_schema(strict=True, ge=0.0, le=0.0)
    return core.union_schema([_positive(core, schema_of), nothing], mode="left_to_right")


def _integers(least: int, most: int, from_text: bool = False) -> Callable[[Any, Any], Any]:
    """Integers, of any type that is one, as ints; from a file also 4.0, which JSON distinguishes by spelling alone.

    ``from_text``: from a file also as the text of a key.
    """

    def whole(value: Any) -> Any:
        if from_text and isinstance(value, str) and value.isdecimal() and value == str(int(value[:20])):
            return int(value)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def build(core: Any, _: Any) -> Any:
        exact = core.int_schema(strict=True, ge=least, le=most)
        lax = core.chain_schema([core.no_info_plain_validator_function(whole), exact])
        other = core.chain_schema([core.no_info_plain_validator_function(as_int), exact])  # such as numpy's
        return core.lax_or_strict_schema(lax_schema=lax, strict_schema=core.union_schema([exact, other]))

    return build


def _test(holds: Callable[[Any], bool]) -> Callable[[Any, Any], Any]:
    def tested(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return lambda core, _: core.no_info_plain_validator_function(tested)


def _texts(least: int) -> Callable[[Any, Any], Any]:
    return lambda core, _: core.str_schema(strict=True, min_length=least, pattern=_PRINTABLE)


def _node_ids(core: Any, _: Any) -> Any:
    largest = 2**63 - 1
    integers = core.int_schema(strict=True, ge=-largest, le=largest)
    return core.union_schema([_texts(1)(core, _), integers], mode="left_to_right")


def instance_of(*kinds: type) -> Rule:
    """The rule of values that are of one of these dataclasses; in files, of the one that has most of their keys."""
    TAGS.update(kind.__name__ for kind in kinds)

    def tag(value: Any) -> str:
        if not isinstance(value, Mapping):
            return type(value).__name__
        return max(kinds, key=lambda kind: len(value.keys() & {each.name for each in fields(kind)})).__name__

    def build(core: Any, schema_of: Callable[[Any], Any]) -> Any:
        choices = {kind.__name__: schema_of(kind) for kind in kinds}
        return core.tagged_union_schema(choices, discriminator=tag)

    return Rule("an instance of " + " or ".join(kind.__name__ for kind in kinds), build, of_parts=True)


def one_of(*words: str) -> Rule:
    """The rule of texts that are one of these."""
    return Rule(" or ".join(words), lambda core, _: core.literal_schema(list(words)))


def member_of(words: type[StrEnum]) -> Rule:
    """The rule of an enumeration's members, and of their texts in files."""
    return Rule(" or ".join(words))


Amount = Annotated[float, Rule(AMOUNTS, _amounts)]
Bandwidth = Annotated[float, Rule(POSITIVE, _positive)]
Seconds = Annotated[float, Rule(f"{POSITIVE}, of seconds", _positive)]
Count = Annotated[int, Rule(f"an integer from 1 to {MAX_COUNT}", _integers(1, MAX_COUNT))]
#: A degree of parallelism as a key, which files write as text.
Degree = Annotated[
    int, Rule(f"a positive integer up to {MAX_COUNT} as a degree", _integers(1, MAX_COUNT, from_text=True))
]
#: An integer of a plan, whatever it means there.
Whole = Annotated[int, Rule("an integer", lambda core, _: core.int_schema(strict=True, ge=-(2**62), le=2**62))]
Index = Annotated[int, Rule("an integer from 0 on", _integers(0, 2**62))]
Text = Annotated[str, Rule("printable text", _texts(0))]
Identifier = Annotated[str, Rule("printable text that is not empty", _texts(1))]
NodeId = Annotated[int | str, Rule("an integer of at most 63 bits or text, printable and not empty", _node_ids)]
Version = Annotated[
    int, Rule("1, the only schema version there is", _test(lambda value: value == 1 and not isinstance(value, bool)))
]
#: What an instance may remember of how it was made.
Fact = Annotated[
    str | int | float,
    Rule(
        "text or a finite number",
        _test(
            lambda value: isinstance(value, str | int | float) and (isinstance(value, str) or abs(value) <= MAX_AMOUNT)
        ),
    ),
]
Flag = Annotated[bool, Rule("true or false", lambda core, _: core.bool_schema(strict=True))]
#: Requirements of plans, as texts (`instances.requirements`).
Requirements = tuple[Text, ...]
#: Where an instance arose, such as in the run of a planner: free fields.
Facts = Mapping[str, Fact]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What every instance has: what is required of its plans beside the problem's rules."""

    requirements: Requirements = ()

    def __str__(self) -> str:
        """The name and the problem, then a line for each fact: values, and how many there are of what is listed."""
        from instances.exchange import form_of

        found = dict(_facts(self))
        wide = max(map(len, found))
        lines = (f"  {name:<{wide}}  {text}" for name, text in found.items() if name != "name")
        return "\n".join([f"{getattr(self, 'name', '')}, an instance of {form_of(type(self)).problem}", *lines])


def _facts(value: Any) -> Iterator[tuple[str, str]]:
    """The fields of a dataclass, and of those inside, with what is to say of each; nothing of what is not there."""
    for each in fields(value):
        own = getattr(value, each.name)
        if is_dataclass(own):
            yield from _facts(own)
        elif isinstance(own, tuple | list | Mapping):
            yield from [(each.name, str(len(own)))] if own else []
        elif each.name.endswith("_bytes") and isinstance(own, float):
            yield each.name, size(own)
        elif "bandwidth" in each.name and isinstance(own, float):
            per = getattr(getattr(value, "flat", value), "time_unit", "s")
            yield each.name.removesuffix("_bytes_per_s"), f"{size(own)}/{per}"
        elif own is not None and own is not False:
            yield each.name, f"{own:.6g}" if isinstance(own, float) else str(own)


@dataclass(frozen=True, kw_only=True)
class Recorded(Declared):
    """What most instances remember as well: how they were declared (``options``), and where they arose (``origin``)."""

    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Facts = field(default_factory=dict)
