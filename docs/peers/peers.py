"""Run published planners of which there are checkouts, and ours on the same files: CPU seconds and objectives.

``python docs/peers/peers.py --piper DIR --dnn-partitioning DIR --pipedream DIR --alpa DIR --nnscaler DIR``, with a DIR
for each checkout that there is; the others are listed as absent. Nothing of theirs is kept: what is built lies in a
folder that goes away.
C++ needs ``g++``. The seconds are those of the whole process, ours with its start; compile kernels beforehand
(``planner doctor --compile``).
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

#: Piper's algorithm on a file, called as its own `single()` calls it; its ``main`` runs all experiments.
PIPER = """
#define main published_main
#include "algo.cpp"
#undef main
int main(int, char **argv) {
    json j;
    ifstream(argv[1]) >> j;
    Instance instance = j.get<Instance>();
    Graph g(instance);
    cout << endl << "objective " << setprecision(12) << g.getTPSForResult(g.runDP()) << endl;
}
"""
#: Devices and gigabytes of memory that Piper's profiles are planned for.
DEVICES = ((8, 8), (64, 8), (512, 8))
#: What Alpa's and nnScaler's recursions are called on: the cost of every interval of a chain on 1, 2, 4, 8 devices. The
#: functions are taken out of their files, whose imports want a GPU.
INTERVALS = """
import ast, json, logging, math, sys, time
import numpy as np
from collections import defaultdict
from types import SimpleNamespace as Given
file, source, name, devices, batches = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
layers = json.load(open(file))["flat"]["layers"]
degrees, num = (1, 2, 4, 8), len(layers)
times = [[layer["tmpcs"][str(degree)][0]["time"] for layer in layers] for degree in degrees]
cost = [[[sum(row[i:j + 1]) for row in times] for j in range(num)] for i in range(num)]
nodes = [each for each in ast.parse(open(source).read()).body if isinstance(each, ast.FunctionDef)]
for node in nodes:
    node.returns = None
    for each in node.args.args:
        each.annotation = None
def jit(function):
    import numba
    return numba.njit(function)
timers = lambda _: Given(start=lambda: None, stop=lambda: None)
kept = ast.Module([node for node in nodes if node.name in name.split(",")], [])
known = dict(np=np, math=math, timers=timers, maybe_numba_jit=jit, _logger=logging.getLogger(), Given=Given)
known["PipelineParallelDesc"] = known["PipelineSearchOutput"] = lambda *found: found
known["_compute_tp_info"] = lambda *_: {
    (degree, s, i, j): Given(all_time=cost[i][j][k], memory=0, comp_time=0, desc=None)
    for k, degree in enumerate(degrees) for s in range(1, devices + 1) for i in range(num) for j in range(i, num)}
exec(compile(kept, source, "exec"), known)
if "training_dp" in known:
    table = np.array(cost)[..., None]
    given = (num, devices, batches, tuple((1, degree) for degree in degrees), 1, table, np.full(table.shape, 4096))
    calls = [lambda: known["training_dp"](*given)[0]] * 2
else:
    graph = Given(op_num=num, get_pipeline_pivots=lambda: list(range(1, num)))
    asked = Given(mesh_desc=Given(col=8, ngpus=devices), update_freq=batches, pipeline_nstages="auto")
    calls = [lambda: known["calc_optimal_pp_plan"](graph, asked)[1]]
for call in calls:
    begun = time.process_time()
    found = call()
print("objective", repr(float(found) / batches), "seconds", time.process_time() - begun)
"""
#: Layers and devices of the chains that they plan, in so many micro-batches.
CHAINS, MICROBATCHES = ((12, 8), (24, 8), (24, 16), (48, 16), (48, 64)), 64
#: Machines that PipeDream's profiles are planned for, and bytes/s between them.
MACHINES, BANDWIDTH = (4, 8), 1e9


@dataclass(frozen=True)
class Row:
    """A planner on an instance: how long it took, and what it found; without an objective, why."""

    instance: str
    planner: str
    cpu_s: float
    objective: float | None
    says: str = ""


def timed(command: Sequence[str | Path], limit_s: float, given: Path | None = None) -> tuple[float, str, str]:
    """CPU seconds of a process and its children, what it printed, and how it failed (empty: it did not)."""
    with open(given or os.devnull) as entry, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdin=entry, stdout=out, stderr=err)
        end = threading.Timer(limit_s, process.kill)
        end.start()
        _, status, used = os.wait4(process.pid, 0)
        end.cancel()
        out.seek(0)
        err.seek(0)
        text, said = out.read(), err.read().strip().splitlines()[-1:]
    process.returncode = os.waitstatus_to_exitcode(status)
    late = process.returncode == -signal.SIGKILL
    failed = (
        f"no end within {limit_s:g} s" if late else f"exit code {process.returncode}: {''.join(said)}" if status else ""
    )
    return used.ru_utime + used.ru_stime, text, failed


def theirs(name: str, planner: str, found: tuple[float, str, str], pattern: str) -> Row:
    """A published planner's row; ``pattern`` finds its objective in what it printed."""
    cpu_s, text, failed = found
    numbers = re.findall(pattern, text)
    if failed or not numbers:
        return Row(name, planner, cpu_s, None, failed or "no objective printed")
    return Row(name, planner, cpu_s, float(numbers[-1]))


def ours(name: str, file: Path, method: str, limit_s: float, *options: str) -> Row:
    """Our row on the same file, for a method or the option ``--exact``."""
    chosen = [method] if method == "--exact" else ["--method", method]
    command = [sys.executable, "-m", "planner", "solve", str(file), *chosen, "--json", *options]
    cpu_s, text, failed = timed(command, limit_s)
    found = json.loads(text) if text.strip() else {}
    said = failed if not found else f"{found['status']} ({found['stop']})"
    return Row(name, f"planner, {method}", cpu_s, found.get("objective"), said)


def piper(checkout: Path, folder: Path, limit_s: float) -> Iterator[Row]:
    """Piper's release (algo.cpp) on its profiles: seconds per sample of the slowest stage, by its own costs."""
    source, program = folder / "piper.cpp", folder / "piper"
    source.write_text(PIPER)
    subprocess.run(["g++", "-O3", "-w", "-I", checkout, source, "-o", program], check=True)
    for profile in sorted((checkout / "inputs").glob("*.json")):
        for devices, memory in DEVICES:
            file = folder / f"{profile.stem}-{devices}.json"
            limits = {"maxDevices": devices, "maxMemoryPerDevice": memory * 2.0**30}
            file.write_text(json.dumps(json.loads(profile.read_text()) | limits))
            name = f"{profile.stem} x {devices}, {memory} GiB"
            yield theirs(name, "Piper's algo.cpp", timed([program, file], limit_s), r"objective (\S+)")
            yield ours(name, file, "piper", limit_s, "--cost-model", "released")
            yield ours(name, file, "exact", limit_s, "--cost-model", "released")


def dnn_partitioning(checkout: Path, folder: Path, limit_s: float) -> Iterator[Row]:
    """Tarnawski et al.'s dp.cpp on its inference graphs: the greatest load, on the file's accelerators and no CPU.

    With the file's CPU its values are lower where nodes go there. Our ``max-load-dp`` is its recursion; ``--exact``
    proves, and counts what leaves a device as the definition here does.
    """
    program = folder / "dp"
    source = checkout / "throughput-dp" / "dp.cpp"
    subprocess.run(["g++", "-O3", "-w", "-I", checkout, source, "-o", program], check=True)
    for published in sorted((checkout / "throughput-inputs").rglob("*_inference.json")):
        graph = json.loads(published.read_text()) | {"maxCPUs": 0}
        file, name = folder / published.name, f"{published.parent.name}/{published.stem}"
        file.write_text(json.dumps(graph))
        stages = ("--stages", str(graph["maxFPGAs"]))
        yield theirs(name, "dp.cpp, ms", timed([program], limit_s, file), r'"maxLoad": ([^,\s]+)')
        yield ours(name, file, "max-load-dp", limit_s, *stages)
        yield ours(name, file, "--exact", limit_s, *stages, "--time-limit", f"{limit_s:g}")


def pipedream(checkout: Path, _folder: Path, limit_s: float) -> Iterator[Row]:
    """PipeDream's optimizer without replicas on its profiles: seconds of a stage by its costs, which are not ours."""
    optimizer = checkout / "optimizer"
    for file in sorted((checkout / "profiler").rglob("profiles/*/graph.txt")):
        for machines in MACHINES:
            name = f"{file.parent.name} x {machines}"
            script = f"import os, runpy, sys; os.chdir({str(optimizer)!r}); sys.path.insert(0, '.'); "
            script += "sys.modules['graphviz'] = type(sys)('graphviz'); "  # for pictures, none of which is drawn
            script += "runpy.run_path('optimizer_graph_hierarchical.py', run_name='__main__')"
            options = ["--straight_pipeline", "-f", file.resolve(), "-n", str(machines), "-b", str(BANDWIDTH)]
            found = timed([sys.executable, "-c", script, *options], limit_s)
            yield theirs(name, "PipeDream's optimizer", found, r"Time per stage in pipeline: (\S+)")
            shape = ("--devices", str(machines), "--stages", str(machines), "--bandwidth", f"{BANDWIDTH:g}")
            yield ours(name, file, "pipedream", limit_s, *shape)


def chain(file: Path, num_layers: int, devices: int) -> None:
    """Write a chain of layers of unequal times on 1, 2, 4 or 8 devices, which neither send nor hold anything."""
    draw = random.Random(num_layers)
    nothing = dict.fromkeys(("weight_bytes", "activation_bytes", "static_bytes"), 0)
    layers = []
    for index in range(num_layers):
        seconds = draw.uniform(1, 2)
        tmpcs = {str(n): [{"id": "one", "time": seconds * (0.9 / n + 0.1), **nothing}] for n in (1, 2, 4, 8)}
        layers.append({"id": index, "tmpcs": tmpcs})
    edges = [{"source": index, "target": index + 1, "bytes": 0} for index in range(num_layers - 1)]
    flat = {
        "problem": "stage_partitioning",
        "schema_version": 1,
        "layers": layers,
        "edges": edges,
        "num_devices": devices,
        "memory_bytes": 1,
    }
    flat |= {"name": "chain", "bandwidth": 1, "num_microbatches": MICROBATCHES, "max_dp_degree": 1}
    whole = {"problem": "flushed_partitioning", "schema_version": 1, "objective": "formula", "flat": flat}
    file.write_text(json.dumps(whole))


def recursions(planner: str, source: Path, names: str, fill: str, folder: Path, limit_s: float) -> Iterator[Row]:
    """A planner's recursion over the intervals of chains: seconds per sample by its own formula.

    Both are minimised over all sizes of a stage's group of devices; theirs has to use each device.
    """
    for num_layers, devices in CHAINS:
        file = folder / f"chain-{num_layers}-{devices}.json"
        chain(file, num_layers, devices)
        command = [sys.executable, "-c", INTERVALS, file, source, names, str(devices), str(MICROBATCHES)]
        found = timed(command, limit_s)
        name = f"chain of {num_layers} x {devices}"
        row = theirs(name, planner, found, r"objective (\S+)")
        warm = re.findall(r"seconds (\S+)", found[1])
        yield replace(
            row, says=row.says or f"on all devices; the recursion alone, compiled: {float(warm[-1]):.3g} CPU s"
        )
        yield ours(name, file, "labels", limit_s, "--fill", fill)


def alpa(checkout: Path, folder: Path, limit_s: float) -> Iterator[Row]:
    """Alpa's inter-operator dynamic program: the stages' sum, and B - 1 times the slowest stage."""
    source = checkout / "alpa" / "pipeline_parallel" / "stage_construction.py"
    names = "get_optimal_submeshes,training_dp_impl,training_dp"
    yield from recursions("Alpa's training_dp", source, names, "replicas", folder, limit_s)


def nnscaler(checkout: Path, folder: Path, limit_s: float) -> Iterator[Row]:
    """nnScaler's dynamic program over stages: B - 1 + L times the slowest stage."""
    source = checkout / "nnscaler" / "autodist" / "pipeline_solver.py"
    names = "_calc_legal_tp_degrees,calc_optimal_pp_plan"
    yield from recursions("nnScaler's calc_optimal_pp_plan", source, names, "stages", folder, limit_s)


PEERS = {
    "piper": piper, "dnn-partitioning": dnn_partitioning, "pipedream": pipedream, "alpa": alpa, "nnscaler": nnscaler,
}  # fmt: skip


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in PEERS:
        parser.add_argument(f"--{peer}", type=Path, metavar="DIR")
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="S", help="of each process (default: 600)")
    given = vars(parser.parse_args())
    print("| Instance | Planner | CPU s | Objective | |\n|---|---|---:|---:|---|")
    for peer, rows in PEERS.items():
        checkout = given[peer.replace("-", "_")]
        if checkout is None:
            print(f"| - | {peer} | - | - | absent: --{peer} DIR |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(checkout.resolve(), Path(folder), given["time_limit"]):
                objective = "-" if row.objective is None else f"{row.objective:.9g}"
                print(f"| {row.instance} | {row.planner} | {row.cpu_s:.3g} | {objective} | {row.says} |", flush=True)


if __name__ == "__main__":
    main()
