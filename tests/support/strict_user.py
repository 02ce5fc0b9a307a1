"""What a type checker sees of the public calls: mypy is run on this file with ``disallow_any_expr`` (pyproject)."""

import planner
from instances.problems.stage_partitioning import StageInstance
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
