"""From a file or a catalog name to an instance: `load`, and which family an instance belongs to."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import formulations
from formulations.contract import quantities
from formulations.contract.family import Family
from formulations.contract.problem import find_family
from instances.errors import InstanceError, expect
from instances.files import expect_few_lines, read_text
from instances.requirements import with_requirements
from planner.files import problems, settings
from planner.files.graph_records import content_of_graph, has_machine, is_graph, read_graph, with_machine
from planner.files.read import STANDARD, parse_json, read_named
from planner.files.rows import has_rows, read_row, split_row
from planner.files.tables import expect_times, is_table, read_table
from planner.process.errors import UsageError, closest
from planner.types import Instance
from solvers.gc_pause import no_collection


class UnknownInstanceError(UsageError):
    """No entry of the catalog and no file has this name."""


#: The problem whose plans may be a trainer's and meet other requirements as well.
_OF_TRAINERS = "training_strategy"
#: What an instance that was validated knows of itself; a changed copy (`dataclasses.replace`) does not.
_IS_VALID = "_is_valid"
#: Commas also stand in values: what separates two parameters of a catalog entry is followed by a name.
COMMA = re.compile(r",(?=\s*[a-z][\w-]*=)")
#: The folder of published inputs (``--inputs`` goes before it).
PUBLISHED = "PLANNER_PUBLISHED"


@no_collection()
def load(
    path_or_name: str | os.PathLike[str] | Mapping[str, Any],
    *,
    inputs: str | None = None,
    problem: str | None = None,
    **overrides: Any,
) -> Instance:
    """An instance from a file or from the catalog.

    Parameters
    ----------
    path_or_name
        A catalog name (``planner list``), with parameters behind a colon if need be (``random-layers:seed=5``), or a
        file: the project's own JSON, a foreign format recognised by its content, a row of a file of instances
        (``FILE#ROW``), or a reproducer of a contradiction; ``-`` is standard input, and ``.gz`` files are decompressed.
        A name of the catalog wins over a file; write ``./NAME`` for the
        file. A file that is not here is looked for in the published inputs.
    inputs
        Folder of published inputs; default: the environment variable ``PLANNER_PUBLISHED``.
    problem
        Read the instance as one of this problem, though it declares another: a file of stage partitioning as
        ``flushed_partitioning``, or with a cluster among the overrides as ``hierarchical_partitioning``. What asks
        about a trainer (``realizable``) and requires more, or says how many micro-batches are in a batch or that the
        objective is an iteration, is read as ``training_strategy``.
    **overrides
        The family's overrides (``planner list PROBLEM``), and the entry's parameters for a catalog name, as text or
        values; ``None`` leaves the instance's own. ``require``: a requirement such as ``"num_stages <= 6"``, or a list
        of them, beside those that the instance declares.

    Raises
    ------
    InstanceError
        If the file cannot be read or breaks a rule: one line with the file, the field, the value and the rule.
    UsageError
        If there is no such name or problem, or an override is unknown or breaks its rule.
    """
    settings.expect_types(path_or_name=path_or_name, inputs=inputs, problem=problem)
    loaded: Instance
    problem = None if problem is None else problem_name(problem)
    if isinstance(path_or_name, Mapping):
        loaded = read_declared(dict(path_or_name), "instance", problem, overrides)
        return loaded
    name, given = _of_name(os.fsdecode(path_or_name))
    if name in catalog():
        loaded = _from_catalog(name, catalog()[name], inputs, problem, {**overrides, **given})
    else:
        content, where = _content(name, inputs, problem, overrides)
        loaded = read_declared(content, where, problem, overrides)
    return loaded


def _of_name(text: str) -> tuple[str, dict[str, str]]:
    """A catalog entry and what is given behind its name, ``NAME:PARAMETER=VALUE,...``; any other text as it is."""
    name, colon, given = text.partition(":")
    if not colon or name not in catalog():
        return text, {}
    pairs = [part.partition("=") for part in COMMA.split(given)]
    if not all(sign for _, sign, _ in pairs):
        raise UsageError.at("the instance", text, f"{name}:PARAMETER=VALUE,...")
    return name, {key.strip().replace("-", "_"): value.strip() for key, _, value in pairs}


def read_declared(content: Any, where: str, problem: str | None, overrides: Mapping[str, Any]) -> Any:
    """The instance that the content of a file declares; arguments and errors as of `load`."""
    problem = None if problem is None else problem_name(problem)
    family = recognise_family(content, where)
    if isinstance(content, dict) and has_machine(family.name):
        content = with_machine(dict(content), overrides, family.name)
    return _read(family, content, where, problem, overrides)


def problem_name(problem: str) -> str:
    """The name of a problem that is named so, or by what a user brings it by; of others, that name."""
    found = problems.load_problem(problem)
    return problem if found is None else found.name


def family_named(name: str) -> Family[Any, Any]:
    """The family of that name, or that a user brings (`problems`); `UsageError` if there is none."""
    found = formulations.family_named(name) or problems.load_problem(name)
    if found is None:
        raise UsageError.unknown(
            "problem", name, [*(family.name for family in formulations.FAMILIES), *problems.installed_problems()]
        )
    return found


def examples_of(family: Family[Any, Any]) -> Iterator[tuple[str, Instance]]:
    """The instances of a problem by the names they have in the catalog, or those that a problem of one's own has.

    `UsageError` if there are none.
    """
    own = [(each.name, each) for each in family.entries.get("examples", tuple)()]
    names = [name for name, entry in catalog().items() if entry.family == family.name]
    if not own and not names:
        raise UsageError.at("PROBLEM", family.name, "a problem with an example")
    yield from own
    yield from ((name, load(name)) for name in names)


def problem_of(name: str, inputs: str | None = None, problem: str | None = None) -> Family[Any, Any]:
    """The family that `load` would read a file or a catalog name as an instance of; the same errors."""
    entry = catalog().get(_of_name(name)[0])
    problem = None if problem is None else problem_name(problem)
    if entry is None:
        content, where = _read_source(name, inputs)
        if is_graph(content):  # what it lacks may be among the overrides
            return family_named(_of_graph(read_graph(content, where), problem))
        if is_table(content):
            content = {"problem": "stage_partitioning"}
        family = recognise_family(content, where)
    else:
        content, family = None, family_named(entry.family)
    if problem is None:
        return family
    return _readers(family, content if entry is None else entry.make(), problem)[problem]


def catalog() -> Mapping[str, Any]:
    """The catalog's entries by name."""
    from instances.catalog.catalog import CATALOG

    return CATALOG


def family_of(instance: Any) -> Family[Any, Any]:
    """The family of an instance: its own `Problem`, or the one named like the module that defines its class.

    `UsageError` if there is none.
    """
    family = find_family(instance) or formulations.family_named(type(instance).__module__.rpartition(".")[2])
    if family is not None:
        return family
    raise UsageError.at("the instance", type(instance).__name__, "an instance of a problem of planner list")


@no_collection()
def validate(instance: Any, where: str = "instance", *, requirements: bool = True) -> Any:
    """The instance, if it keeps all its rules, whether a file declared it or a caller built it.

    What was validated once is not validated again: instances are frozen, and a changed copy is a new one.

    ``requirements``: whether the caller honours them; else an instance that has some is refused.

    `InstanceError` if a field breaks a rule: one line with ``where``, the field, the value and the rule.
    `UsageError` if it is no instance of any family.
    """
    family = family_of(instance)
    if not vars(instance).get(_IS_VALID):
        from instances.validation import validate_fields

        instance = validate_fields(instance, where)
        family.check(instance, where)
        required = quantities.check(family.vocabulary, instance, where)
        instance = instance if required == instance.requirements else replace(instance, requirements=required)
        object.__setattr__(instance, _IS_VALID, True)
    if not requirements:
        rule = "none: they are not honoured here"
        expect(not instance.requirements, where, "requirements", list(instance.requirements), rule)
    return instance


def recognise_family(content: Any, where: str) -> Family[Any, Any]:
    """The family that recognises the content of a file; `InstanceError` if none does: of a plan, or a certificate."""
    if isinstance(content, dict) and "problem" in content and isinstance(content.get("instance"), str):
        rule = f"an instance, such as the one of this plan ({content['instance']})"
        raise InstanceError.at(where, "content", "a plan", rule)
    if isinstance(content, dict) and "instance_sha256" in content:
        raise InstanceError.at(where, "content", "a certificate", "an instance (planner verify INSTANCE CERTIFICATE)")
    for family in formulations.FAMILIES:
        if family.recognise(content):
            return family
    known = [family.name for family in formulations.FAMILIES]
    if isinstance(content, dict) and str(content.get("problem")) in problems.installed_problems():
        return family_named(content["problem"])
    if isinstance(content, str):
        expect_times(content, where)
    if isinstance(content, dict) and "problem" in content:
        raise InstanceError.at(where, "problem", content["problem"], f"one of {closest(content['problem'], known)}")
    kind = "JSON" if not isinstance(content, str) else "text"
    rule = 'JSON with the key "problem" (planner list) or a known format'
    if isinstance(content, str) and "<graphml" in content[:1000]:
        kind, rule = "GraphML", "node-link JSON, as networkx.node_link_data writes it"
    raise InstanceError.at(where, "content", kind, rule)


def _read(
    family: Family[Any, Any],
    content: Any,
    where: str,
    problem: str | None,
    overrides: Mapping[str, Any],
    *,
    keeps_rules: bool = False,
) -> Any:
    """The instance that a content of this family and the overrides declare, read as the requested problem.

    ``keeps_rules``: it is an entry of the catalog as it stands, which tests hold to the rules of every field; what
    validates these takes as long to import as all else that loads an instance.
    """
    overrides, required = settings.split_requirements(overrides)
    trainer, objective = overrides.get("realizable"), overrides.get("objective")
    flushed = problem == "flushed_partitioning" and overrides.get("fill") is None and objective != "formula"
    if trainer is not None and (problem is None or flushed) and _OF_TRAINERS in _readers(family, content):
        has_it = "realizable" in {each.name for each in family.overrides}
        of_batch = flushed or overrides.get("microbatches") is not None or objective == "iteration"
        problem = _OF_TRAINERS if required or of_batch or not has_it else None
    if (problem or family.name) == _OF_TRAINERS and objective is not None:
        if objective != "iteration":
            raise UsageError.at("--objective", objective, f"iteration: {_OF_TRAINERS} has no other")
        overrides = {**overrides, "objective": None}
    if problem is not None:
        family = _readers(family, content, problem)[problem]
    try:
        parsed = settings.parse(family.overrides, overrides, family.name)
    except settings.UnknownSettingError as error:
        readers = _readers(family, content)
        owners = [name for name, other in readers.items() if error.name in {each.name for each in other.overrides}]
        if not owners:
            raise
        way = "add" if problem is None else f"not of {problem}:"
        raise UsageError(f"option --{error.name} is one of {owners[0]}; {way} --problem {owners[0]}") from None
    found = with_requirements(family.read(content, where, parsed), required)
    if keeps_rules:
        object.__setattr__(found, _IS_VALID, True)
    return validate(found, where)


def _readers(family: Family[Any, Any], content: Any, problem: str | None = None) -> dict[str, Family[Any, Any]]:
    """The families that read this content, first its own; `UsageError` if ``problem`` is given and none of them."""
    others = {each.name: each for each in formulations.FAMILIES if each.also_reads and each.also_reads(content)}
    readers = {family.name: family, **others}
    if problem is not None and problem not in readers:
        raise UsageError.unknown("--problem", problem, readers)
    return readers


def _content(name: str, inputs: str | None, problem: str | None, overrides: Mapping[str, Any]) -> tuple[Any, str]:
    """What a file or a row of it declares (a graph: as the JSON of its problem), and its name for errors."""
    content, where = _read_source(name, inputs)
    if is_table(content):
        return with_machine(read_table(content, where, overrides), overrides), where
    if not is_graph(content):
        return content, where
    graph = read_graph(content, where)
    return content_of_graph(graph, where, _of_graph(graph, problem), overrides), where


def _of_graph(graph: Any, problem: str | None) -> str:
    """The problem of a graph: the one that it names, else the one it is read as, or stage partitioning."""
    return str(graph.graph.get("problem", problem or "stage_partitioning"))


def _read_source(name: str, inputs: str | None) -> tuple[Any, str]:
    """What a file or a row of it holds, and its name for errors."""
    if name == STANDARD:
        text, where = read_named(name)
        return _parse_text(text, where), where
    name, row = split_row(name)
    path = _find(name, inputs, list(catalog()))
    content = read_content(path) if row is None and not has_rows(path) else read_row(path, row)
    return content, str(path)


def read_content(path: Path) -> Any:
    """The JSON value in a file, or its text if it is of another format.

    `InstanceError` if the file cannot be read, is no text, or starts like JSON and is none.
    """
    return _parse_text(read_text(path), str(path))


def _parse_text(text: str, where: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        if not text.strip():
            raise InstanceError.at(where, "content", "", "a problem")
        return expect_few_lines(text, where)
    content = parse_json(text, where)
    if isinstance(content, dict) and "contradictions" in content and "instance" in content:
        return content["instance"]  # a reproducer
    return content


def published_file(name: str, inputs: str | None) -> Path | None:
    """The published input of that name, in the folder given or named by the environment; ``None`` if there is none.

    `UsageError` if the folder cannot be read.
    """
    folder = inputs or os.environ.get(PUBLISHED)
    if not folder or not os.path.isdir(folder) or os.path.isabs(name):
        return None
    try:
        homes = [folder, *sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())]
    except OSError as error:
        rule = f"a folder that can be read ({error.strerror or error})"
        raise UsageError.at("--inputs" if inputs else PUBLISHED, folder, rule) from None
    return next((Path(home, name) for home in homes if os.path.isfile(os.path.join(home, name))), None)


def published_input(name: str, inputs: str | None) -> Path | None:
    """The same, but a folder that was given must have it: `UsageError` if it has not."""
    found = published_file(name, inputs)
    if found is None and inputs is not None:
        raise UsageError.at("--inputs", inputs, f"a folder that holds {name}, or has a folder that does")
    return found


def _from_catalog(name: str, entry: Any, inputs: str | None, problem: str | None, overrides: Mapping[str, Any]) -> Any:
    """Make a catalog instance: the entry's own parameters first, the family's overrides on top."""
    given = {key.replace("_", "-"): value for key, value in overrides.items()}
    own = {parameter.name for parameter in entry.parameters}
    parameters = settings.parse(entry.parameters, {key: value for key, value in given.items() if key in own}, name)
    file = None if entry.published is None else published_input(entry.published.file, inputs)
    if file is None:
        made = entry.make(**{key.replace("-", "_"): value for key, value in parameters.items()})
    else:
        made = entry.published.make(read_content(file), str(file))
    family, rest = family_named(entry.family), {key: value for key, value in given.items() if key not in own}
    as_it_stands = file is None and all(
        isinstance(value, type(None) | bool | list) and not value for value in given.values()
    )
    return _read(family, made, name, problem, rest, keeps_rules=as_it_stands)


def _find(name: str, inputs: str | None, known: list[str]) -> Path:
    fault = ""
    try:
        os.stat(name)
        return Path(name)
    except OSError as error:  # such as links in a circle
        absent = isinstance(error, FileNotFoundError) and os.sep not in name and not Path(name).suffix
        fault = "" if absent else error.strerror or str(error)
    except ValueError:  # a name that no file can have
        pass
    published = published_file(name, inputs)
    if published is not None:
        return published
    if fault:
        raise InstanceError.at(name, "file", fault, "a readable file or a name of the catalog")
    raise UnknownInstanceError.unknown("INSTANCE", name, known)
