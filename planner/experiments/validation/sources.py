"""From what a user names to many instances: files of rows, folders, patterns of names, catalog entries that are drawn.

A source is, in this order: ``NAME:PARAMETER=VALUES,...`` of a catalog entry or its bare name; ``PROBLEM:KEY=N,...`` or
a problem's bare name, of which small instances are drawn as for `planner mine`; a file that is there; a folder, of
which every file is read, or the population if a validation wrote it; a pattern such as ``'runs/*.json'``; anything else
that `planner.load` takes.

Of ``'bert:layers=4..48,hidden-size=1024|2048,memory=8GiB..40GiB'``, ``LOW..HIGH`` is a range (whole numbers where both
ends are), ``A|B`` a choice, anything else the one value. Parameters of the entry and overrides of its problem can be
drawn; what is not named has its default, but for the ``seed`` of an entry that has one.
"""

import glob
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import formulations
from formulations.contract.family import Family
from instances.errors import InstanceError
from instances.parameters import MAX_COUNT, Setting, parse_count
from planner.files.load import COMMA, catalog, family_of, load, read_declared
from planner.files.rows import SUFFIXES, count_rows, read_rows
from planner.process.errors import UsageError

#: In the folder of a validation: its population, and what it is.
POPULATION, HEADER = "instances.jsonl", "validate.json"


@dataclass(frozen=True)
class Member:
    """One instance of a population: what `planner.load` takes, with the ``settings`` that were drawn for it.

    ``drawn`` are those that vary, but for the seed, as values. ``content`` is the JSON value of a row that was read
    already.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    drawn: Mapping[str, Any] = field(default_factory=dict)
    content: Any = None

    @property
    def origin(self) -> str:
        """As on the command line: ``bert --layers 12 --forward-only``, ``rows.jsonl#7``."""
        spelled = (f"--{name}" if value == "true" else f"--{name} {value}" for name, value in self.settings.items())
        return " ".join([self.name, *(each for each in spelled if not each.endswith(" false"))])

    @property
    def overrides(self) -> dict[str, str]:
        """What was drawn, as `planner.load` takes it."""
        return {name.replace("-", "_"): value for name, value in self.settings.items()}

    def load(self, inputs: str | None, overrides: Mapping[str, Any]) -> Any:
        """The instance; what was drawn goes before the overrides. Errors as of `planner.load`."""
        settings = {**overrides, **self.overrides}
        if self.content is None:
            return load(self.name, inputs=inputs, **settings)
        problem = settings.pop("problem", None)
        return read_declared(self.content, self.name, problem, settings)


def members(
    sources: Sequence[str], count: int | None = None, seed: int = 0, *, names_only: bool = False
) -> Iterator[Member]:
    """The instances that the sources name, in order.

    ``count``: so many of each source: drawn from a catalog entry, of the others a sample without repetition, in their
    order. Default: all, of a catalog entry with a range of seeds one for each, and of one of which nothing varies the
    one that it is.
    ``names_only``: rows are counted and not read: ``content`` stays ``None``.
    `InstanceError` if a file cannot be read, or was cut off.
    `UsageError` if a source is empty, there is no such file, a count is needed, or a parameter is unknown or breaks its
    rule.
    """
    if count is not None and count < 1:
        raise UsageError.at("--count", count, "at least 1")
    for source in sources:
        drawn = generator(source)
        if drawn is not None:
            yield from _draw(drawn, count, seed)
            continue
        if not names_only and (family := _problem(source)) is not None:
            yield from _draw_small(source, family, count, seed)
            continue
        sizes = {file: count_rows(Path(file)) if file.endswith(SUFFIXES) else 1 for file in _files(source)}
        total = sum(sizes.values())
        if not total:
            raise UsageError.at("SOURCE", source, "at least one instance; there is none")
        wanted: Sequence[int] = range(total)
        if count is not None and count < total:
            wanted = sorted(random.Random(seed).sample(range(total), count))
        yield from _read(sizes, wanted, names_only)


def first_name(source: str) -> str:
    """The name of an instance of a source, as `planner.load` takes it; errors as of `members`."""
    drawn = generator(source)
    if drawn is not None:
        return drawn.entry
    if (family := _problem(source)) is not None:
        return next(name for name, entry in catalog().items() if entry.family == family.name)
    file = next(iter(_files(source)))
    return f"{file}#0" if file.endswith(SUFFIXES) else file


def same_problem(found: Iterator[tuple[Member, Any]]) -> Iterator[tuple[Member, Any]]:
    """The members with their instances, which must be of one problem; `InstanceError` for the first that is not."""
    first: tuple[str, str] | None = None
    for member, instance in found:
        problem = family_of(instance).name
        first = first or (problem, member.name)
        if problem != first[0]:
            raise InstanceError.at(member.name, "problem", problem, f"{first[0]}, as {first[1]} is one of")
        yield member, instance


def _draw(drawn: "Generator", count: int | None, seed: int) -> Iterator[Member]:
    if count is None and drawn.seeds:
        count = len(drawn.seeds)
    if count is None and drawn.varies and drawn.spelled:
        raise UsageError(f"--count is missing; expected how many instances of {drawn.source} to draw")
    if count is None and not drawn.spelled:  # a catalog name: the instance that it is
        yield Member(drawn.entry)
        return
    draws = drawn.draws(count or 1, seed) if drawn.varies else drawn.draws(1, seed)
    yield from (Member(drawn.entry, settings, drawn.values(settings)) for settings in draws)


def _problem(source: str) -> Family[Any, Any] | None:
    """The problem that a source names, if it has small random instances."""
    family = formulations.family_named(source.partition(":")[0])
    return None if family is None or family.mining is None else family


def _draw_small(source: str, family: Family[Any, Any], count: int | None, seed: int) -> Iterator[Member]:
    """So many small random instances of whole numbers, within the limits that a source has."""
    assert family.mining is not None
    space, limits = family.mining(), {}
    for part in filter(None, source.partition(":")[2].split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in space.limits:
            raise UsageError.unknown("parameter", name, space.limits)
        try:
            limits[name] = parse_count(value)
        except ValueError as rule:
            raise UsageError.at(name, value, str(rule)) from None
    if count is None:
        raise UsageError(f"--count is missing; expected how many instances of {source} to draw")
    genes, rng = space.genes({**space.limits, **limits}), random.Random(seed)
    for number in range(count):
        while (instance := genes.build(genes.random(rng))) is None:
            pass
        yield Member(f"{source}#{number}", content=family.to_json(instance))


def _files(source: str) -> list[str]:
    """The files of a source, with what only `planner.load` knows as it is."""
    if os.path.isdir(source):
        if os.path.isfile(os.path.join(source, HEADER)):
            return [os.path.join(source, POPULATION)]
        try:
            found = sorted(entry.path for entry in os.scandir(source) if entry.is_file() and entry.name[0] != ".")
        except OSError as error:
            raise UsageError.at("SOURCE", source, f"a folder that can be read ({error.strerror})") from None
        if not found:
            raise UsageError.at("SOURCE", source, "a folder that holds files")
        return found
    if os.path.exists(source) or not glob.has_magic(source):
        return [source]
    found = sorted(path for path in glob.glob(source, recursive=True) if os.path.isfile(path))
    if not found:
        raise UsageError.at("SOURCE", source, "a pattern that files match; there is none")
    return found


def _read(sizes: Mapping[str, int], wanted: Sequence[int], names_only: bool) -> Iterator[Member]:
    """The wanted members of files of these sizes, counted through."""
    start, chosen = 0, set(wanted)
    for file, size in sizes.items():
        rows = {number - start for number in range(start, start + size) if number in chosen}
        start += size
        if not file.endswith(SUFFIXES):
            yield from (Member(file) for _ in rows)
        elif names_only:
            yield from (Member(f"{file}#{row}") for row in sorted(rows))
        else:
            yield from (Member(f"{file}#{row}", content=content) for row, content in read_rows(Path(file), rows))


_SEED = "seed"

Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class Generator:
    """A catalog entry with what is drawn of it; ``spelled``: parameters were given, ``varies``: draws differ.

    ``parameters`` are those that vary, but for the seed. Of a range of ``seeds`` each is taken in turn, not drawn.
    """

    source: str
    entry: str
    axes: Mapping[str, Draw]
    parameters: Mapping[str, Setting]
    varies: bool
    spelled: bool
    seeds: range = range(0)

    def draws(self, count: int, seed: int) -> Iterator[dict[str, str]]:
        """Settings of so many instances; fewer are the beginning of more."""
        rng = random.Random(seed)
        for place in range(count):
            drawn = {name: draw(rng) for name, draw in self.axes.items()}
            yield drawn | ({_SEED: str(self.seeds[place % len(self.seeds)])} if self.seeds else {})

    def values(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """What was drawn, as numbers where it is some."""
        found = {name: setting.parse(settings[name]) for name, setting in self.parameters.items()}
        return {name: value if type(value) in (int, float) else settings[name] for name, value in found.items()}


def generator(source: str) -> Generator | None:
    """The catalog entry that a source names, with what varies; ``None`` if it names none.

    `UsageError` if a parameter is unknown, is given twice, or its values break its rule.
    """
    name, colon, given = source.partition(":")
    entry = catalog().get(name)
    if entry is None:
        return None
    family = next(family for family in formulations.FAMILIES if family.name == entry.family)
    known = {setting.name: setting for setting in (*family.overrides, *entry.parameters)}
    axes: dict[str, Draw] = {}
    parameters: dict[str, Setting] = {}
    varies, seeds = False, range(0)
    for part in COMMA.split(given) if colon else ():
        parameter, sign, values = (each.strip() for each in part.partition("="))
        parameter = parameter.replace("_", "-")
        if not sign or not values or parameter in axes:
            raise UsageError.at("SOURCE", source, f"{name}:PARAMETER=VALUES,..., each parameter once")
        if parameter not in known:
            raise UsageError.unknown("parameter", parameter, list(known))
        axes[parameter], is_one = _axis(known[parameter], values)
        varies |= not is_one
        if not is_one and parameter != _SEED:
            parameters[parameter] = known[parameter]
        if parameter == _SEED and ".." in values:
            low, _, high = values.partition("..")
            seeds = range(int(low), int(high) + 1)
    if any(each.name == _SEED for each in entry.parameters) and _SEED not in axes:
        axes[_SEED], varies = (lambda rng: str(rng.randrange(MAX_COUNT))), True
    return Generator(source, name, axes, parameters, varies, bool(colon), seeds)


def _axis(setting: Setting, values: str) -> tuple[Draw, bool]:
    """How values of a parameter are drawn, and whether there is only one; `UsageError` if one breaks its rule."""
    choices = [each.strip() for each in values.split("|")]
    low, dots, high = values.partition("..")
    if dots and len(choices) == 1:
        ends = [_parse_value(setting, values, each.strip()) for each in (low, high)]
        if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) or ends[0] > ends[1]:
            raise UsageError.at(f"--{setting.name}", values, "LOW..HIGH, two numbers in this order")
        return _between(*ends), ends[0] == ends[1]
    for choice in choices:
        _parse_value(setting, values, choice)
    return (lambda rng: rng.choice(choices)), len(set(choices)) == 1


def _between(low: float, high: float) -> Draw:
    if float(low).is_integer() and float(high).is_integer():
        return lambda rng: str(rng.randint(int(low), int(high)))
    return lambda rng: repr(rng.uniform(low, high))


def _parse_value(setting: Setting, values: str, text: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as rule:
        shown = values if values == text else f"{text} in {values}"
        several = "; of several values one is drawn: A|B or LOW..HIGH" if "," in text else ""
        raise UsageError.at(f"--{setting.name}", shown, f"{rule}{several}") from None
