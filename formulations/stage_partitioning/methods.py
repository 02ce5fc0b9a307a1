"""The methods of stage partitioning: what they claim, where they come from, when they apply."""

from __future__ import annotations

from formulations.family import Claim, Method, lazy
from formulations.stage_partitioning.models.size import (
    assignment_effort,
    assignment_supports,
    columns_effort,
    columns_supports,
)
from formulations.stage_partitioning.problem import StagePlan
from instances.parameters import Setting, one_of
from instances.stage_partitioning import StageInstance

_ROOM = "formulations.stage_partitioning"

_RULES = ("auto", "rerank", "sort-once", "truncating")

KNAPSACK = Setting(
    "knapsack",
    one_of(*_RULES),
    "rerank: as published; sort-once: as released, at most 2 TMPCs per (node, t); truncating: caps the gain; "
    "auto: sort-once under the released cost model where it applies, else rerank",
    metavar="|".join(_RULES),
    default="auto",
)

METHODS: tuple[Method[StageInstance, StagePlan], ...] = (
    Method(
        name="piper",
        claim=Claim.HEURISTIC,
        source="Piper, section 4: dynamic program over downsets with a bang-per-buck knapsack",
        solve=lazy(f"{_ROOM}.paper:solve"),
        supports=lazy(f"{_ROOM}.effort:table_supports"),
        effort=lazy(f"{_ROOM}.effort:table_effort"),
        options=(KNAPSACK,),
    ),
    Method(
        name="piper-exact-knapsack",
        claim=Claim.EXACT,
        source="Piper, section 4, with exact knapsacks, which makes it exact (Appendix C)",
        solve=lazy(f"{_ROOM}.paper:solve_exact_knapsack"),
        supports=lazy(f"{_ROOM}.effort:table_supports"),
        effort=lazy(f"{_ROOM}.effort:table_effort"),
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="threshold search over downsets, made for this project (the room's README)",
        solve=lazy(f"{_ROOM}.exact.threshold:solve"),
        supports=lazy(f"{_ROOM}.effort:exact_supports"),
        effort=lazy(f"{_ROOM}.effort:exact_effort"),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="direct assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.cpsat:solve"),
        supports=assignment_supports,
        effort=assignment_effort,
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="direct assignment model in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.milp:solve"),
        supports=assignment_supports,
        effort=assignment_effort,
    ),
    Method(
        name="milp-columns",
        claim=Claim.EXACT,
        source="flow of priced stages over pairs of downsets in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.models.columns:solve"),
        supports=columns_supports,
        effort=columns_effort,
    ),
    Method(
        name="linearised",
        claim=Claim.HEURISTIC,
        source="exact search over the stages of a few topological orders, in rounds, made for this project",
        solve=lazy(f"{_ROOM}.exact.linearised:solve"),
        effort=lazy(f"{_ROOM}.effort:linearised_effort"),
    ),
    Method(
        name="equi",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equal groups of layers with the same degrees everywhere",
        solve=lazy(f"{_ROOM}.baselines.equi:solve"),
    ),
    Method(
        name="equi-no-tp",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equi without tensor parallelism, a surrogate for PipeDream-2BW",
        solve=lazy(f"{_ROOM}.baselines.equi:solve_without_tp"),
    ),
    Method(
        name="pipedream",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019: a chain with data parallelism, memory unlimited; no plan if its own does not fit",
        solve=lazy(f"{_ROOM}.baselines.pipedream:solve"),
    ),
)
