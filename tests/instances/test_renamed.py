"""Old names of modules, which users' methods and notebooks import, lead to the modules of today, with a line."""

import importlib
import sys

import pytest

from formulations import FAMILIES
from instances.renamed import current_name

#: Problems that came later have no old names.
NEWER = {"training_strategy", "serving_strategy", "operator_strategies"}


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES if each.name not in NEWER], ids=lambda family: family.name
)
@pytest.mark.parametrize("old", ["instances.{}", "formulations.{}.problem"])
def test_old_names_of_a_problem(
    old: str, family: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = old.format(family.name)  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, name, raising=False)
    new = current_name(name)
    assert new is not None
    assert importlib.import_module(name) is importlib.import_module(new)
    monkeypatch.delitem(sys.modules, name)
    assert capsys.readouterr().err == f"{name} is {new} now: import it under that name\n"


@pytest.mark.parametrize("old", ["formulations.family", "planner.run", "planner.result", "planner.errors"])
def test_old_names_of_what_all_share(old: str) -> None:
    new = current_name(old)
    assert new is not None
    assert importlib.import_module(old) is importlib.import_module(new)
    del sys.modules[old]


def test_other_names_are_not_known() -> None:
    assert current_name("instances.nothing") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("formulations.stage_partitioning.nothing")
