"""The methods of stage partitioning: what they claim, where they come from, when they apply."""

from __future__ import annotations

from formulations.contract.family import Claim, Method, lazy
from formulations.contract.quantities import names
from formulations.stage_partitioning import model_size
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import MODELLED
from formulations.stage_partitioning.model_size import (
    assignment_effort,
    assignment_supports,
    assignment_too_large,
    columns_effort,
    columns_supports,
)
from instances.parameters import Setting, one_of
from instances.problems.stage_partitioning import StageInstance

_ROOM = "formulations.stage_partitioning"

#: More downsets than this are not enumerated.
MAX_DOWNSETS = 100_000

#: Most cells of the exact method's label table (downsets times sums of degrees), about 20 bytes each.
MAX_LABELS = 40_000_000

#: Most entries of the published program's table before pruning (a few percent of them are kept).
MAX_TABLE = 2_000_000_000

#: What both column models of a problem rest on, here and in the rooms that price stages as well (`Method.shares`).
PRICES = "priced stages"

LISTED = f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short)"
_TABLE = f"{LISTED}, where the table dp[D][k][s] has at most {MAX_TABLE:,} entries before pruning"
DIRECT = f"instances whose direct model has at most {model_size.MAX_ASSIGNMENT:,} terms; of larger ones a first plan"

_RULES = ("auto", "rerank", "sort-once", "truncating")

KNAPSACK = Setting(
    "knapsack",
    one_of(*_RULES),
    "rerank: as published; sort-once: as released, at most 2 TMPCs per (node, t); truncating: caps the gain; "
    "auto: sort-once under the released cost model where it applies, else rerank",
    metavar="|".join(_RULES),
    default="auto",
)

#: What decides which stages a plan may have, but not what their numbers are.
HONOURED = frozenset({"num_stages", "num_devices", "same_stage", "tp_degree_of", "dp_degree_of"})

METHODS: tuple[Method[StageInstance, StagePlan], ...] = (
    Method(
        name="piper",
        claim=Claim.HEURISTIC,
        source="Piper, section 4: dynamic program over downsets with a bang-per-buck knapsack",
        solve=lazy(f"{_ROOM}.paper.piper:solve"),
        supports=lazy(f"{_ROOM}.exact.effort:table_supports"),
        limits=_TABLE,
        effort=lazy(f"{_ROOM}.exact.effort:table_effort"),
        options=(KNAPSACK,),
    ),
    Method(
        name="piper-exact-knapsack",
        claim=Claim.EXACT,
        source="Piper, section 4, with exact knapsacks, which makes it exact (Appendix C)",
        solve=lazy(f"{_ROOM}.paper.piper:solve_exact_knapsack"),
        supports=lazy(f"{_ROOM}.exact.effort:table_supports"),
        limits=_TABLE,
        effort=lazy(f"{_ROOM}.exact.effort:table_effort"),
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="threshold search over downsets, made for this project (the room's README)",
        solve=lazy(f"{_ROOM}.exact.threshold:solve"),
        supports=lazy(f"{_ROOM}.exact.effort:exact_supports"),
        limits=f"{LISTED}, where downsets times sums of data-parallel degrees are at most {MAX_LABELS:,}",
        effort=lazy(f"{_ROOM}.exact.effort:exact_effort"),
        honours=HONOURED,
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="direct assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.models.cpsat:solve"),
        build=lazy(f"{_ROOM}.models.cpsat:build"),
        honours=names(MODELLED),
        supports=assignment_supports,
        too_large=assignment_too_large,
        limits=DIRECT,
        effort=assignment_effort,
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="direct assignment model in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.models.milp:solve"),
        build=lazy(f"{_ROOM}.models.milp:build"),
        honours=names(MODELLED),
        supports=assignment_supports,
        too_large=assignment_too_large,
        limits=DIRECT,
        effort=assignment_effort,
    ),
    Method(
        name="cpsat-columns",
        claim=Claim.EXACT,
        source="flow of priced stages over pairs of downsets in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.models.columns_cpsat:solve"),
        build=lazy(f"{_ROOM}.models.columns_cpsat:build"),
        honours=names(MODELLED),
        supports=columns_supports,
        limits=f"graphs of at most {model_size.MAX_DOWNSETS} downsets",
        effort=columns_effort,
        shares=PRICES,
    ),
    Method(
        name="milp-columns",
        claim=Claim.EXACT,
        source="flow of priced stages over pairs of downsets in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.models.columns:solve"),
        build=lazy(f"{_ROOM}.models.columns:build"),
        honours=names(MODELLED),
        supports=columns_supports,
        limits=f"graphs of at most {model_size.MAX_DOWNSETS} downsets",
        effort=columns_effort,
        shares=PRICES,
    ),
    Method(
        name="realizable",
        claim=Claim.EXACT,
        source="degrees enumerated, cuts by dynamic programs or the threshold search, made for this project",
        solve=lazy(f"{_ROOM}.exact.trainer_exact:solve"),
        supports=lazy(f"{_ROOM}.exact.effort:realizable_supports"),
        limits="instances with the requirement realizable(TRAINER) (--realizable TRAINER) and no other",
        honours=frozenset({"realizable"}),
        needs="realizable(deepspeed)",
    ),
    Method(
        name="linearised",
        claim=Claim.HEURISTIC,
        source="exact search over the stages of a few topological orders, in rounds, made for this project",
        solve=lazy(f"{_ROOM}.exact.interval_plans:solve"),
        effort=lazy(f"{_ROOM}.exact.effort:linearised_effort"),
    ),
    Method(
        name="equi",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equal groups of layers with the same degrees everywhere",
        solve=lazy(f"{_ROOM}.baselines:solve"),
    ),
    Method(
        name="equi-no-tp",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equi without tensor parallelism, a surrogate for PipeDream-2BW",
        solve=lazy(f"{_ROOM}.baselines:solve_without_tp"),
    ),
    Method(
        name="pipedream",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019: a chain with data parallelism, memory unlimited; no plan if its own does not fit",
        solve=lazy(f"{_ROOM}.paper.pipedream:solve"),
    ),
)
