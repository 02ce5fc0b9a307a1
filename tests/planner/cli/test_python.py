"""What a notebook needs of `planner`: instances from dicts, files, records and tables."""

import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import planner
from instances.errors import InstanceError
from planner.files.load import family_of


def test_public_names() -> None:
    assert set(dir(planner)) == {*planner.__all__, "__version__"}
    assert all(getattr(planner, name) is not None for name in dir(planner))
    assert planner.__version__ == metadata.version("dnn-planner")


def test_an_instance_from_a_dict_and_a_file(tmp_path: Path) -> None:
    instance = planner.load("chain8", memory="40MB")
    planner.save(instance, tmp_path / "saved.json")
    assert planner.load(tmp_path / "saved.json") == instance
    content = family_of(instance).to_json(instance)
    assert planner.load(content) == instance
    assert planner.load(content, devices=2).num_devices == 2
    with pytest.raises(InstanceError, match="num_devices is -1"):
        planner.load({**content, "num_devices": -1})


def test_a_result_is_saved_and_shown(tmp_path: Path) -> None:
    instance = planner.load("chain8", memory="40MB")
    result = planner.solve(instance, exact=True)
    planner.save(result, tmp_path / "result.json")
    saved = json.loads((tmp_path / "result.json").read_text())
    assert planner.check(instance, saved["plan"]).objective == result.objective
    records = result.to_records()
    assert [record["nodes"] for record in records] == [stage["nodes"] for stage in saved["plan"]["stages"]]
    assert replace(result, plan=None).to_records() == []
    shown = replace(result, instance="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown and shown.count("<tr>") == 3 + len(records)


def test_a_comparison_is_a_table() -> None:
    report = planner.crosscheck(planner.load("chain8", memory="40MB"), methods=["exact", "equi"])
    shown = replace(report, contradictions=("<i>",))._repr_html_()
    assert shown.count("<tr>") == 1 + 2 + 2 and "&lt;i&gt;" in shown and "<i>" not in shown
