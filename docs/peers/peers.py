"""Run published planners of which there are checkouts, and ours on the same files: CPU seconds and objectives.

``python docs/peers/peers.py --piper DIR --dnn-partitioning DIR --pipedream DIR``, with a DIR for each checkout that
there is; the others are listed as absent. Nothing of theirs is kept: what is built lies in a folder that goes away.
C++ needs ``g++``. The seconds are those of the whole process, ours with its start; compile kernels beforehand
(``planner doctor --compile``).
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    """Our row for a method on the same file."""
    command = [sys.executable, "-m", "planner", "solve", str(file), "--method", method, "--json", *options]
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
    """Tarnawski et al.'s dp.cpp on its inference graphs: the greatest load (of a training graph, forward and backward).

    Our ``max-load-dp`` is its recursion; ``exact`` counts what leaves a device as the problem's definition does.
    """
    program = folder / "dp"
    source = checkout / "throughput-dp" / "dp.cpp"
    subprocess.run(["g++", "-O3", "-w", "-I", checkout, source, "-o", program], check=True)
    for file in sorted((checkout / "throughput-inputs").rglob("*_inference.json")):
        yield theirs(file.stem, "dp.cpp", timed([program], limit_s, file), r'"maxLoad": ([^,\s]+)')
        yield ours(file.stem, file, "max-load-dp", limit_s)
        yield ours(file.stem, file, "exact", limit_s)


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


PEERS = {"piper": piper, "dnn-partitioning": dnn_partitioning, "pipedream": pipedream}


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
