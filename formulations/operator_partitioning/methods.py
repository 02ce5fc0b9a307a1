"""The methods of operator partitioning: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Claim, Method, lazy, modelled
from formulations.contract.quantities import names
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from instances.parameters import Setting, parse_amount, parse_count, parse_flag
from instances.problems.operator_partitioning import OperatorInstance

_code = lazy("formulations.operator_partitioning")

#: More downsets than this are not enumerated.
MAX_DOWNSETS = 250_000

#: Of graphs with more, so many downsets near a plan are searched for a better one.
NEAR = 3_000

#: Beyond these a model takes too long to build.
MODEL_BOOLEANS = 60_000

_MODEL = f"instances with a declared number of stages whose model has at most {MODEL_BOOLEANS:,} Booleans"

ALPHA = Setting("alpha", parse_amount, "weight of communication in clustering", metavar="A", default="0.001")

CLUSTERS = Setting(
    "clusters", parse_count, "number of clusters for the dynamic program", metavar="K", default="8 S, 64 to 256"
)

LOSSES = Setting("report-losses", parse_flag, "report what each step loses against the optimum", is_flag=True)

_FLOW_EFFORT = _code.effort.flow_effort

choose = _code.effort.choose

METHODS: tuple[Method[OperatorInstance, OperatorPlan], ...] = (
    Method(
        name="parmesan",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4: clustering, dynamic programming, refinement",
        solve=_code.paper.parmesan.solve,
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS, LOSSES),
    ),
    Method(
        name="dp",
        claim=Claim.HEURISTIC,
        source="Parmesan, Equations 2 and 3 on the clustered graph, without refinement",
        solve=_code.paper.parmesan.solve_dp,
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS),
    ),
    Method(
        name="cluster",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4.2, until every cluster is a stage",
        solve=_code.paper.parmesan.solve_cluster,
        effort=_FLOW_EFFORT,
        options=(ALPHA,),
    ),
    Method(
        name="refine",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4.3, from the even cut",
        solve=_code.paper.parmesan.solve_refine,
        effort=_FLOW_EFFORT,
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="thresholds over chains of all downsets, made for this project (the package's README)",
        solve=_code.exact.solve,
        supports=_code.effort.exact_supports,
        limits=f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short); of larger ones, with the "
        "number of stages given, a plan near Parmesan's",
        effort=_code.effort.exact_effort,
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="assignment model in CP-SAT, made for this project",
        **modelled(_code.models.cpsat, "cpsat"),
        honours=names(VOCABULARY),
        supports=_code.effort.model_supports,
        limits=_MODEL,
        effort=_code.effort.model_effort,
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="assignment model in Pyomo and HiGHS, made for this project",
        **modelled(_code.models.milp, "highs"),
        honours=names(VOCABULARY),
        supports=_code.effort.model_supports,
        limits=_MODEL,
        effort=_code.effort.model_effort,
    ),
    Method(
        name="pipedream",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019: the best intervals of one topological order",
        solve=_code.paper.parmesan.solve_pipedream,
        effort=_FLOW_EFFORT,
    ),
    Method(
        name="equal",
        claim=Claim.HEURISTIC,
        source="one topological order cut where the seconds are shared evenly",
        solve=_code.paper.parmesan.solve_equal,
    ),
    Method(
        name="max-load-dp",
        claim=Claim.HEURISTIC,
        source="Tarnawski et al. 2020: dynamic program over all downsets, what leaves a stage counted once",
        solve=_code.paper.parmesan.solve_max_load,
        supports=_code.effort.table_supports,
        limits=f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short), equally many replicas",
        effort=_code.effort.exact_effort,
    ),
)
