"""What there is: families and their methods, catalog instances, versions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import formulations
from formulations.family import Family, Method, Setting
from planner.show.terminal import console
from planner.versions import versions


def listing(catalog: Mapping[str, Any]) -> dict[str, Any]:
    """The object that ``planner list --json`` prints."""
    return {
        "families": [_family(family) for family in formulations.FAMILIES],
        "catalog": [
            {
                "name": entry.name,
                "problem": entry.family,
                "help": entry.help,
                "source": entry.source,
                "parameters": [_setting(parameter) for parameter in entry.parameters],
            }
            for entry in catalog.values()
        ],
        "versions": versions(),
    }


def show_listing(found: Mapping[str, Any]) -> None:
    """Print it as tables."""
    from rich.table import Table

    out = console()
    methods = Table("problem", "method", "claim", "source", "supports", box=None)
    for family in found["families"]:
        for method in family["methods"]:
            methods.add_row(family["name"], *(method[key] for key in ("name", "claim", "source", "supports")))
    instances = Table("instance", "problem", "what it is", box=None)
    for entry in found["catalog"]:
        instances.add_row(entry["name"], entry["problem"], entry["help"])
    out.print(methods, "", instances, "", ", ".join(f"{name} {is_}" for name, is_ in found["versions"].items()))


def _family(family: Family[Any, Any]) -> dict[str, Any]:
    return {
        "name": family.name,
        "overrides": [_setting(setting) for setting in family.overrides],
        "methods": [_method(method) for method in family.methods],
    }


def _method(method: Method[Any, Any]) -> dict[str, Any]:
    return {
        "name": method.name,
        "claim": method.claim.value,
        "source": method.source,
        "supports": _supported(method),
        "options": [_setting(option) for option in method.options],
    }


def _supported(method: Method[Any, Any]) -> str:
    """What the method supports: the first line that its ``supports`` says of itself, if it refuses anything."""
    if method.supports is Method.__dataclass_fields__["supports"].default:
        return "every instance"
    own = inspect.getdoc(method.supports) if inspect.isfunction(method.supports) else None
    return (own or "some instances").partition("\n")[0]


def _setting(setting: Setting) -> dict[str, Any]:
    return {"name": setting.name, "help": setting.help, "default": setting.default, "is_flag": setting.is_flag}
