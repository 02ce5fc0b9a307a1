"""Bad values of every setting: one line and no traceback, on the command line (exit 2) and from Python."""

import json
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import TEXTS, VALUES, assert_one_line, documented

import planner
from formulations import FAMILIES
from formulations.contract.family import Family
from instances.catalog.catalog import CATALOG
from instances.errors import InstanceError
from instances.parameters import Setting
from planner.files.settings import parse


@pytest.mark.parametrize("owners", [FAMILIES, CATALOG.values()], ids=["families", "catalog"])
def test_every_value_is_parsed_or_refused_in_one_line(owners: Iterable[Any]) -> None:
    for setting in (each for owner in owners for each in settings(owner)):
        for value in (*TEXTS, *VALUES, object(), b"1", 1j, float("nan"), float("inf"), 10**5000):
            if value is None or value is False:
                continue  # not given
            try:
                parse([setting], {setting.name: value})
            except planner.UsageError as refused:
                assert_one_line(refused, f"--{setting.name} is ")


def settings(owner: Any) -> Iterable[Setting]:
    """Of an entry of the catalog, or of a family and its methods."""
    if not isinstance(owner, Family):
        return owner.parameters
    return (*owner.overrides, *(option for method in owner.methods for option in method.options))


@cache
def instance_of(name: str, folder: Path) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(documented()[name]))
    return path


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_overrides_of_any_value_are_applied_or_refused(family: Family[Any, Any], tmp_path: Path, many: int) -> None:
    """An instance that keeps its rules, or one line."""
    rng = random.Random(f"overrides {family.name}")
    path = instance_of(family.name, tmp_path)
    for _ in range(many or 30):
        given = {rng.choice(family.overrides).name: rng.choice(TEXTS) for _ in range(rng.choice([1, 1, 2]))}
        try:
            planner.load(path, **{name.replace("-", "_"): value for name, value in given.items()})
        except (InstanceError, planner.UsageError) as refused:
            assert_one_line(refused)
        except Exception as error:
            raise AssertionError(f"{family.name}: {given}") from error
