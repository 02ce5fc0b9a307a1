"""What there is: families and their methods, catalog instances, versions, and the health of the installation."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import formulations
from formulations.compiled.compile_times import compiling
from formulations.contract.family import Family, Method
from instances.parameters import Setting
from planner.display.terminal import bold, console, grid
from planner.files import choices
from planner.files.load import UnknownInstanceError, catalog, family_of, load, problem_name
from planner.process.errors import UsageError
from planner.process.installation import Finding
from planner.process.versions import versions
from planner.results.texts import facts
from planner.solving.predicted_runtime import predicted_s
from planner.solving.solve import silent

#: Columns of the lists, in a terminal that has them: longer lines of prose are hard to read.
_WIDE = 80


def listing(catalog: Mapping[str, Any], problem: str | None = None) -> dict[str, Any]:
    """The object that ``planner list --json`` prints, of one problem or (``None``) of all."""
    problem = None if problem is None else problem_name(problem)
    known = {family.name: family for family in formulations.FAMILIES}
    return {
        "families": [_family(family) for family in known.values() if problem in (None, family.name)],
        "catalog": [
            {
                "name": entry.name,
                "problem": entry.family,
                "help": entry.help,
                "source": entry.source,
                "parameters": [_setting(parameter) for parameter in entry.parameters],
            }
            for entry in catalog.values()
            if problem in (None, entry.family)
        ],
        "versions": versions(),
    }


def listing_of(
    name: str, *, inputs: str | None = None, notice: Callable[[str], None] = silent, **overrides: Any
) -> dict[str, Any]:
    """The object that ``planner list INSTANCE --json`` prints: which methods take the instance, and why others do not.

    ``name``, ``inputs``, ``overrides``: as for `planner.load`.
    ``notice``: called when kernels are being compiled, and with the instance's warnings.
    `InstanceError`, `UsageError` as of `planner.load`; the names closest to an unknown one may be those of problems.
    """
    try:
        instance = load(name, inputs=inputs, **overrides)
    except UnknownInstanceError:
        known = [*(family.name for family in formulations.FAMILIES), *catalog()]
        raise UsageError.unknown("PROBLEM or INSTANCE", name, known) from None
    family = family_of(instance)
    for warning in family.warnings(instance):
        notice(f"warning: {warning}")
    with compiling(notice):
        family.load()
    return {
        "problem": family.name,
        "instance": instance.name,
        "figures": dict(family.describe(instance)),
        "methods": [_fitting(family, method, instance) for method in family.methods],
    }


def _fitting(family: Family[Any, Any], method: Method[Any, Any], instance: Any) -> dict[str, Any]:
    """Whether a method takes an instance: the reason if not, else predicted steps and seconds (absent: none)."""
    refusal, too_large = method.refusal(instance), method.too_large(instance)
    if refusal is None and too_large is not None:
        refusal = f"{too_large}; named, it has a first plan"
    effort = 0.0 if refusal else method.effort(instance)
    predicted = effort if 0.0 < effort < math.inf else None
    seconds = None if predicted is None else predicted_s(family, method, instance)
    return {
        "name": method.name,
        "claim": method.claim.value,
        "refusal": refusal,
        "effort": predicted,
        "predicted_s": seconds,
    }


def show_fitting(found: Mapping[str, Any]) -> None:
    """Print which methods take an instance, with their predicted effort, and why others do not."""
    _show(found["instance"], [(found["problem"], facts(found["figures"]))])
    rows = [(method["name"] + "*" * (method["claim"] == "exact"), _answer(method)) for method in found["methods"]]
    _show("Methods (*: exact) that take this instance, with predicted steps and seconds", rows)


def _answer(method: Mapping[str, Any]) -> str:
    if method["refusal"] is not None:
        return f"does not take it: {method['refusal']}"
    if method["effort"] is None:
        return "takes it"
    lasting = "" if method["predicted_s"] is None else f", {method['predicted_s']:.2g} s or more"
    return f"takes it, {method['effort']:.1e} steps{lasting}"


def show_listing(found: Mapping[str, Any]) -> None:
    """Print the problems with the names of their methods, the instances, and the versions."""
    names = {
        family["name"]: ", ".join(method["name"] + "*" * (method["claim"] == "exact") for method in family["methods"])
        for family in found["families"]
    }
    _show("Problems and their methods (*: exact; more: planner list PROBLEM)", names.items())
    for problem in names:
        _show(f"Instances of {problem}", _instances(found, problem))
    _show("Versions", found["versions"].items())


def show_problem(found: Mapping[str, Any]) -> None:
    """Print one problem: what is minimised, its methods in sentences, the options, and the instances."""
    family = found["families"][0]
    known = next(iter(choices.find_families(family["name"])))
    settings = {setting.name for setting in known.overrides}
    aims = (
        (f"--objective {name}" if name and "objective" in settings else "", sentence(f"the {what}"))
        for name, what in known.minimises.items()
    )
    _show(f"{family['name']} minimises", aims)
    _show(
        f"Methods of {family['name']}",
        ((method["name"], f"{method['claim'].capitalize()}. {_description(method)}") for method in family["methods"]),
    )
    families = choices.find_families(family["name"])
    offered = [*choices.overrides_of(families), *choices.options_of(families)]
    for heading in dict.fromkeys(choice.heading for choice in offered):
        of_heading = (each for each in offered if each.heading == heading)
        _show(heading, ((f"--{each.name}" + f" {each.metavar}" * (not each.is_flag), each.help) for each in of_heading))
    terms = [(each["quantity"], sentence(each["says"])) for each in family["vocabulary"]]
    amounts = ["time", *(() if known.nearby is None else known.nearby.axes)]
    _show("Quantities for --require", [*terms, (f"{', '.join(amounts)} <= AMOUNT", _BOUNDS)] if terms else [])
    inside = ((f"{each['problem']} --from {each['method']}", sentence(each["says"])) for each in family["subproblems"])
    _show("Subproblems for planner extract and census --problem", inside)
    _show(f"Instances of {family['name']}", _instances(found, family["name"]))


_BOUNDS = "Of planner solve alone, with --minimise or without: time <= 40ms. In Python planner.solve_least."


def show_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each that ``planner doctor`` found."""
    from rich.text import Text

    health = {True: Text("ok", "green"), False: Text("FAILED", "bold red")}
    out = console()
    out.print(grid((health[found.healthy], found.name, found.detail) for found in findings))
    failed = sum(not found.healthy for found in findings)
    out.print("all checks passed" if not failed else f"{failed} of {len(findings)} checks failed")


def sentence(text: str) -> str:
    """A text as a sentence: a capital letter, unless the first word has digits as names do, and a full stop.

    >>> sentence("multi-modal transformer, 4 layers"), sentence("chain8 with a flush.")
    ('Multi-modal transformer, 4 layers.', 'chain8 with a flush.')
    """
    first = text.partition(" ")[0]
    start = text[:1].upper() if first.islower() and not any(map(str.isdigit, first)) else text[:1]
    return start + text[1:] + "." * (text[-1:] not in (".", "!", "?"))


def _show(title: str, rows: Iterable[tuple[str, str]]) -> None:
    made = grid(rows, indent=1)
    if made.row_count:
        console(most=_WIDE).print(bold(title), made, "")


def _instances(found: Mapping[str, Any], problem: str) -> Iterable[tuple[str, str]]:
    return ((entry["name"], sentence(entry["help"])) for entry in found["catalog"] if entry["problem"] == problem)


def _description(method: Mapping[str, Any]) -> str:
    limits = "" if method["supports"] == _EVERY else f" Takes {method['supports']}."
    return sentence(method["source"]) + limits


def _family(family: Family[Any, Any]) -> dict[str, Any]:
    return {
        "name": family.name,
        "overrides": [_setting(setting) for setting in family.overrides],
        "methods": [_method(method) for method in family.methods],
        "vocabulary": [{"quantity": each.signature, "says": each.says} for each in family.vocabulary],
        "subproblems": [
            {"problem": each.problem, "method": each.method, "says": each.says} for each in family.subproblems
        ],
    }


#: The sentence for a method that supports every instance.
_EVERY = "every instance"


def _method(method: Method[Any, Any]) -> dict[str, Any]:
    return {
        "name": method.name,
        "claim": method.claim.value,
        "source": method.source,
        "supports": method.limits or _EVERY,
        "options": [_setting(option) for option in method.options],
    }


def _setting(setting: Setting) -> dict[str, Any]:
    return {"name": setting.name, "help": setting.help, "default": setting.default, "is_flag": setting.is_flag}
