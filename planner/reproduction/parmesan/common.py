"""The claims of Parmesan that can be examined here."""

from typing import Any

from formulations.contract.family import lazy
from instances.parameters import Setting, one_of, parse_amount, parse_degrees
from planner.reproduction.claim import Claim

_code = lazy("planner.reproduction.parmesan")

_NETWORKS = ("mesh2d", "torus2d", "mesh3d", "torus3d", "random-blk-1", "random-blk-2", "uniform-dist")


def _networks(value: Any) -> tuple[str, ...]:
    parse = one_of(*_NETWORKS)
    try:
        return tuple(parse(part.strip()) for part in str(value).split(","))
    except ValueError:
        raise ValueError(f"names separated by commas, of {', '.join(_NETWORKS)}") from None


def _panels(value: Any) -> str:
    if not str(value) or set(str(value)) - set("abc"):
        raise ValueError("letters of a, b and c")
    return str(value)


def _models(value: Any) -> tuple[str, ...]:
    parse = one_of("resnet-152", "bert-l", "swin-l", "semantic-fpn")
    return tuple(parse(part.strip()) for part in str(value).split(","))


_TIME = Setting("time-limit", parse_amount, "seconds of each method on each cell", metavar="SECONDS", default="10")
_OBJECTIVE = Setting(
    "objective",
    one_of("p2p", "allreduce", "full", "auto"),
    "what counts of a stage's time; auto: the paper's ratio rule, cell by cell",
    metavar="p2p|allreduce|full|auto",
    default="auto",
)

_GRAPH = "stages of SemanticFPN, or a chain with skip connections"


def _graph(default: str) -> Setting:
    return Setting("graph", one_of("semantic-fpn", "skip"), _GRAPH, metavar="semantic-fpn|skip", default=default)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "parmesan-fig-2",
        "Parmesan, Figure 2",
        "consecutive mapping is not optimal on two machines of two devices",
        _code.fig_2.run,
    ),
    Claim(
        "parmesan-table-1",
        "Parmesan, Table 1",
        "three models on machines of four GPUs: partitions with consecutive mapping and with the algorithm's",
        _code.table_1.run,
        (_TIME, _OBJECTIVE),
    ),
    Claim(
        "parmesan-table-2",
        "Parmesan, Table 2",
        "speedups over consecutive mapping on grids and random networks, with proved gaps",
        _code.table_2.run,
        (
            _TIME,
            _OBJECTIVE,
            Setting("devices", parse_degrees, "only cells with so many devices", metavar="64,256,512", default="all"),
            Setting("topologies", _networks, "only these networks", metavar="KIND,...", default="all"),
            _graph("semantic-fpn"),
        ),
    ),
    Claim(
        "parmesan-orders",
        "Parmesan, Algorithm 2 (reconstructed)",
        "the orders of nodes and devices that the paper leaves open, on the cells of Table 2 with 64 devices",
        _code.orders.run,
        (
            Setting("search-devices", parse_amount, "devices that one search tries", metavar="N", default="1e6"),
            _graph("skip"),
        ),
    ),
    Claim(
        "parmesan-fig-3",
        "Parmesan, Figure 3",
        "samples per second of BERTs and Swins on DGX-1 machines, simulated, by partition, mapping and shape",
        _code.fig_3.run,
        (_TIME, _OBJECTIVE, Setting("panels", _panels, "only these", metavar="a|b|c|ab|...", default="abc")),
    ),
    Claim(
        "parmesan-ablation",
        "Parmesan, Appendix J (reconstructed)",
        "each part of the flow left out or varied: clustering, refinement, alpha, K, searches, targets, objective",
        _code.ablation.run,
        (_TIME, Setting("models", _models, "only these", metavar="NAME,...", default="resnet-152,semantic-fpn")),
    ),
)
