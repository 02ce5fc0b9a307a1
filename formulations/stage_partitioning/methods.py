"""The methods of stage partitioning: what they claim, where they come from, when they apply."""

from formulations.contract.family import Claim, Method, lazy, modelled
from formulations.contract.quantities import names
from formulations.stage_partitioning import model_size
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import MODELLED
from formulations.stage_partitioning.model_size import (
    assignment_supports,
    blocks_effort,
    blocks_too_large,
    columns_effort,
    columns_supports,
)
from instances.parameters import Setting, one_of
from instances.problems.stage_partitioning import StageInstance

_code = lazy("formulations.stage_partitioning")

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
BLOCKS = f"instances with at most {model_size.MAX_CHOICES:,} choices of a node in a block; of larger ones a first plan"

_RULES = ("auto", "rerank", "sort-once", "truncating")

KNAPSACK = Setting(
    "knapsack",
    one_of(*_RULES),
    "rerank: as published; sort-once: as released, at most 2 TMPCs per (node, t); truncating: caps the gain; "
    "auto: sort-once under the released cost model where it applies, else rerank",
    metavar="|".join(_RULES),
    default="auto",
)

CUTOFF = Setting(
    "cutoff",
    one_of("none", "exact"),
    "none: as published; exact: what no plan better than one of the method `exact` can use is left out of the table "
    "(the same plans, other seconds)",
    metavar="none|exact",
    default="none",
)

SYNC = Setting(
    "sync",
    one_of("beside", "after"),
    "beside: weights are synchronised while a stage computes; after: then, as PipeDream's release has it",
    metavar="beside|after",
    default="beside",
)

#: What decides which stages a plan may have, but not what their numbers are.
HONOURED = frozenset({"num_stages", "num_devices", "same_stage", "tp_degree_of", "dp_degree_of"})

choose = _code.exact.effort.choose

METHODS: tuple[Method[StageInstance, StagePlan], ...] = (
    Method(
        name="piper",
        claim=Claim.HEURISTIC,
        source="Piper, section 4: dynamic program over downsets with a bang-per-buck knapsack",
        solve=_code.paper.piper.solve,
        supports=_code.exact.effort.table_supports,
        limits=_TABLE,
        effort=_code.exact.effort.table_effort,
        options=(KNAPSACK, CUTOFF),
        threads=True,
    ),
    Method(
        name="piper-exact-knapsack",
        claim=Claim.EXACT,
        source="Piper, section 4, with exact knapsacks, which makes it exact (Appendix C)",
        solve=_code.paper.piper.solve_exact_knapsack,
        supports=_code.exact.effort.table_supports,
        limits=_TABLE,
        effort=_code.exact.effort.table_effort,
        options=(CUTOFF,),
        threads=True,
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="threshold search over downsets, made for this project (the package's README)",
        solve=_code.exact.threshold.solve,
        supports=_code.exact.effort.exact_supports,
        limits=f"{LISTED}, where downsets times sums of data-parallel degrees are at most {MAX_LABELS:,}",
        effort=_code.exact.effort.labels_effort,
        honours=HONOURED,
        threads=True,
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="path of blocks, each a stage at its place, in CP-SAT, made for this project",
        **modelled(_code.models.cpsat, "cpsat"),
        honours=names(MODELLED),
        supports=assignment_supports,
        too_large=blocks_too_large,
        limits=BLOCKS,
        effort=blocks_effort,
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="path of blocks, each a stage at its place, in Pyomo and HiGHS, made for this project",
        **modelled(_code.models.milp, "highs"),
        honours=names(MODELLED),
        supports=assignment_supports,
        too_large=blocks_too_large,
        limits=BLOCKS,
        effort=blocks_effort,
    ),
    Method(
        name="cpsat-columns",
        claim=Claim.EXACT,
        source="flow of priced stages over pairs of downsets in CP-SAT, made for this project",
        **modelled(_code.models.cpsat_columns, "cpsat"),
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
        **modelled(_code.models.milp_columns, "highs"),
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
        solve=_code.exact.trainer_exact.solve,
        supports=_code.exact.effort.realizable_supports,
        limits="instances with the requirement realizable(TRAINER) (--realizable TRAINER) and no other",
        honours=frozenset({"realizable"}),
        needs="realizable(deepspeed)",
    ),
    Method(
        name="linearised",
        claim=Claim.HEURISTIC,
        source="exact search over the stages of a few topological orders, in rounds, made for this project",
        solve=_code.exact.interval_plans.solve,
        effort=_code.exact.effort.linearised_effort,
    ),
    Method(
        name="equi",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equal groups of layers with the same degrees everywhere",
        solve=_code.baselines.solve,
    ),
    Method(
        name="equi-no-tp",
        claim=Claim.HEURISTIC,
        source="Piper, section 5: equi without tensor parallelism, a surrogate for PipeDream-2BW",
        solve=_code.baselines.solve_without_tp,
    ),
    Method(
        name="pipedream",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019: a chain with data parallelism, memory unlimited; no plan if its own does not "
        "fit; found by the threshold search of `exact` in place of its recursion",
        solve=_code.paper.pipedream.solve,
    ),
    Method(
        name="pipedream-recursion",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019, by its own costs: the slowest computation, synchronisation or transfer",
        solve=_code.paper.pipedream_recursion.solve,
        options=(SYNC,),
    ),
)
