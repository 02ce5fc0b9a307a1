"""Checkers of certificates on instances that would fill a memory: little of it, and a line that says why not."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

Edges = list[tuple[int, int]]

#: Operators and edges of graphs in files below 64 MiB.
GRAPHS = ("long", "dense", "star", "wide")


def graph(kind: str) -> tuple[int, Edges]:
    """Operators, and edges between them."""
    return {
        "long": lambda: (100_000, [(v, v + 1) for v in range(99_999)]),
        "dense": lambda: (500, [(u, v) for v in range(500) for u in range(v)]),
        "star": lambda: (20_000, [(0, v) for v in range(1, 20_000)]),
        "wide": lambda: (40, list[tuple[int, int]]()),
    }[kind]()


def flat(kind: str) -> dict:
    """Of stage partitioning: layers that take a second; the middle of a star has as many TMPCs as edges."""
    count, edges = graph(kind)
    x = {"time": 1.0, "weight_bytes": 1.0, "activation_bytes": 1.0, "static_bytes": 0.0}
    rows = [[{"id": str(k), **x} for k in range(count if kind == "star" and not v else 1)] for v in range(count)]
    return {
        "problem": "stage_partitioning", "layers": [{"id": v, "tmpcs": {"1": row}} for v, row in enumerate(rows)],
        "edges": [{"source": u, "target": v, "bytes": 0.0} for u, v in edges], "num_devices": 64,
        "memory_bytes": 1e9, "num_microbatches": 64, "bandwidth": 1e9,
    }  # fmt: skip


def operators(kind: str) -> dict:
    """Of operator partitioning: operators that take a second."""
    count, edges = graph(kind)
    return {
        "problem": "operator_partitioning", "operators": [{"id": v, "compute_s": 1.0} for v in range(count)],
        "tensors": [{"source": u, "targets": [v], "volume_bytes": 0.0} for u, v in edges],
        "bandwidth_bytes_per_s": 1.0, "num_stages": 2,
    }  # fmt: skip


def stage_graph(kind: str) -> dict:
    count, edges = graph(kind)
    each = {"forward": {"fixed_s": 0, "per_sample_s": 1}, "backward": {"fixed_s": 0, "per_sample_s": 1}}
    return {
        "problem": "stage_graph", "num_devices": 64, "minibatch": 64, "memory_bytes": 200.0, "latency_s": 0,
        "operators": [{"id": v, **each, "weight_bytes": 1, "activation_bytes": 1} for v in range(count)],
        "edges": [{"source": u, "target": v, "bytes_per_sample": 0} for u, v in edges],
        "bandwidth_bytes_per_s": 1, "weight_copies": 0,
    }  # fmt: skip


def schedule(edges: str) -> dict:
    """Two stages with so many edges between them."""
    return {
        "problem": "microbatch_schedule", "objective": "time", "minibatch": 40_000,
        "stages": [{"forward_s": 1.0, "backward_s": 1.0}] * 2, "edges": [{"source": 0, "target": 1}] * int(edges),
    }  # fmt: skip


def made(name: str, kind: str) -> tuple[dict, dict]:
    """The content of an instance, and a proof that is of the form of one."""
    machines = {"devices_per_machine": 8, "num_machines": 8, "inner_bandwidth": 1e9, "outer_bandwidth": 1e9}
    links: dict[str, Any] = {"objective": "full", "ring": "index", "bandwidth_bytes_per_s": [[0.0, 1.0], [1.0, 0.0]]}
    ways = {
        "stage_partitioning": lambda: (flat(kind), {"kind": "labels", "downsets": [["0", [[0, 0]]]]}),
        "flushed_partitioning": lambda: ({"flat": flat(kind)}, {"kind": "caps", "caps": []}),
        "hierarchical_partitioning": lambda: ({"flat": flat(kind), **machines}, {"kind": "search"}),
        "stage_graph": lambda: (stage_graph(kind), {"kind": "search"}),
        "operator_partitioning": lambda: (operators(kind), {"kind": "labels", "counted": []}),
        "pipeline_placement": lambda: ({"operators": operators(kind), **links}, {"kind": "search"}),
        "microbatch_schedule": lambda: (schedule(kind), {"kind": "bound", "name": "heads and tails"}),
    }
    content, proof = ways[name]()
    return content | {"problem": name}, proof


HOSTILE = [
    (name, kind)
    for name in (
        "stage_partitioning", "flushed_partitioning", "hierarchical_partitioning", "stage_graph",
        "operator_partitioning", "pipeline_placement",
    )
    for kind in GRAPHS
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [*HOSTILE, ("microbatch_schedule", "100000")])
def test_hostile_instances_take_little_memory(name: str, kind: str) -> None:
    """At most 1 GiB while the checker works, which is ended here after ten CPU seconds."""
    content, proof = made(name, kind)
    certificate = {"format": 1, "problem": name, "plan": None, "objective": None, "bound": "1000000", "proof": proof}
    script = (
        "import json, resource, sys\n"
        f"from formulations.{name}.certificate import checker\n"
        "from formulations.contract.checker.frame import RejectedError\n"
        "certificate, content = json.load(sys.stdin)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 11))\n"
        "try:\n"
        "    digest = checker.Instance(content).digest\n"
        "except RejectedError as error:\n"
        "    sys.exit(str(error))\n"
        "print(checker.verify(content, certificate | {'instance_sha256': digest})['reason'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps([certificate, content]), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "memory" not in done.stdout, done.stderr[-500:]
    assert done.returncode == -signal.SIGXCPU or (done.stdout + done.stderr).count("\n") == 1, done
