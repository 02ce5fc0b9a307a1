"""Pictures of plans: `solve --plot FILE.svg`, for the families that draw theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from formulations import FAMILIES
from planner.errors import UsageError
from planner.files import write_atomically
from planner.loading import family_of


def artist(instance: Any, path: str) -> Callable[[Any, Any], str]:
    """What draws the plans of an instance as SVG; `UsageError` if nothing does or the file is to be something else."""
    picture = family_of(instance).picture
    if picture is None:
        known = ", ".join(family.name for family in FAMILIES if family.picture is not None)
        raise UsageError.at("--plot", path, f"a problem whose plans are drawn ({known})")
    if Path(path).suffix.lower() != ".svg":
        raise UsageError.at("--plot", path, "a file FILE.svg")
    return picture


def draw(path: str, instance: Any, plan: Mapping[str, Any]) -> None:
    """Write the picture of a plan, in the family's JSON form, to a file."""
    picture = artist(instance, path)
    write_atomically(Path(path), picture(instance, family_of(instance).plan_from_json(instance, plan)))
