"""What a type checker sees of the public calls: no ``Any`` but that of networkx, which has no types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_USER = """
import planner
from instances.stage_partitioning import StageInstance
from planner.types import Json

instance = planner.load("chain8", memory="40MB")
assert isinstance(instance, StageInstance)
layers: int = len(instance.layers)
result = planner.solve(instance, exact=True, limits=planner.Limits(time_s=1))
plan = result.plan or {}
stages: Json = plan["stages"]
assert isinstance(stages, list)
seconds: Json = result.stats["compile_seconds"]
records = result.to_records()
degree: Json = records[0]["dp_degree"]
report = planner.crosscheck(instance, methods=["exact"])
objects = [result.to_json(), report.to_json(), planner.check(instance, plan).to_json()]
gaps = [each.gap for each in report.results]
planner.save(result, "result.json")
"""


def test_a_strict_user_meets_no_any(tmp_path: Path) -> None:
    user, root = tmp_path / "user.py", Path(__file__).parents[2]
    user.write_text(_USER)
    options = [
        "--strict",
        "--disallow-any-expr",
        "--follow-imports=silent",
        "--config-file=",
        f"--cache-dir={tmp_path}",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path}", str(user)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.startswith("Success"), run.stdout
