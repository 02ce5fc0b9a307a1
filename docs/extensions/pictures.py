"""The gallery of pictures: each is made by the command that stands above it, while the site is built.

``<!-- gallery of pictures -->`` on a page becomes a section for each of `COMMANDS`. Pictures lie beside the pages, in a
folder that is made anew.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
from pathlib import Path

from sphinx.application import Sphinx

MARK = "<!-- gallery of pictures -->"
FOLDER = "pictures"
#: By what is drawn: what to look at, and the commands; the last one draws.
COMMANDS: dict[str, tuple[str, ...]] = {
    "stage_partitioning": (
        "The first half computes activations again (hatched), so that it fits.",
        "planner solve bert32 --devices 32 --memory 8GiB --microbatches 512",
    ),
    "flushed_partitioning": (
        "Filling and draining are the bubble.",
        "planner solve bert --problem flushed_partitioning --devices 8 --memory 3GiB --tp 1 --microbatches 16",
    ),
    "training_strategy": (
        "Weight gradients fill the bubbles of the drain.",
        "planner solve chain8 --problem training_strategy --schedule zb-h1 --microbatches 12",
    ),
    "hierarchical_partitioning": ("The link of a machine stands beside its stages.", "planner solve chain8-machines"),
    "layer_assignment": ("A cheap cut is worth a longer stage.", "planner solve layers"),
    "amp_strategy": ("The slower node has a stage of its own.", "planner solve amp-het-cluster"),
    "mesh_tiling": (
        "Neighbours in the pipeline are neighbours on the mesh.",
        "planner solve mesh --columns 8 --tp-degree 2 --dp-degree 2 --ordered --seed 3",
    ),
    "microbatch_schedule": ("Stages have micro-batches of their own sizes.", "planner solve schedule-figure-5"),
    "operator_partitioning": ("Cuts are where little is sent.", "planner solve gnmt --time-limit 10"),
    "stage_graph": ("Two branches run side by side.", "planner solve mmt-2 --time-limit 10"),
    "device_mapping": ("Replicas of a stage stay inside a machine.", "planner solve dgx1 --time-limit 10"),
    "pipeline_placement": ("Partition and mapping in one.", "planner solve placement"),
    "operator_strategies": ("What is dear is dear for its edges.", "planner solve strategies --exact"),
    "serving_strategy": ("Decode steps outweigh the prompt.", "planner solve llama3-70b-serving"),
    "tmpc_knapsack": (
        "The heuristic pays for memory that it does not need.",
        "planner solve knapsack --nodes 10 --options 3 --exact",
    ),
    "A comparison": ("Losses against the optimum, and who knew what when.", "planner crosscheck layers --quiet"),
    "A difference": (
        "Two plans of one model, and what their stages cost.",
        "planner solve bert32 --devices 16 --method exact --out best.json",
        "planner solve bert32 --devices 16 --method equi --out even.json",
        "planner diff best.json even.json bert32 --devices 16",
    ),
    "A frontier": (
        "More devices help where there are micro-batches for more replicas.",
        "planner frontier bert32 --devices 32 --microbatches 32",
    ),
    "Devices and memory": (
        "What would eight more devices, or 16 GiB more, buy? Lines are 1.1, 1.5, 2 and 4 times the least.",
        "planner frontier bert32 --devices 64 --memory 8GiB --more-devices 8 --memories 4GiB,6GiB,12GiB,16GiB,24GiB",
    ),
}


def on_builder_inited(app: Sphinx) -> None:
    """Begin with an empty folder; called by Sphinx before it looks for pages."""
    folder = Path(app.srcdir) / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def on_source_read(app: Sphinx, _page: str, content: list[str]) -> None:
    """Fill in the gallery; called by Sphinx for every page, and ``content[0]`` is its text."""
    if MARK in content[0]:
        content[0] = content[0].replace(MARK, gallery(Path(app.srcdir) / FOLDER))


def gallery(folder: Path) -> str:
    """A section for each picture, which is written into the folder."""
    sections = []
    for title, (says, *commands) in COMMANDS.items():
        name = f"{title.replace(' ', '-').lower()}.png"
        *before, last = commands
        with contextlib.chdir(folder):
            for command in (*before, f"{last} --plot {name}"):
                _run(command)
        shown = "\n".join(f"$ {command}" for command in (*before, f"{last} --plot FILE.png"))
        sections.append(f"## {title}\n\n{says}\n\n```console\n{shown}\n```\n\n![{says}]({FOLDER}/{name})")
    return "\n\n".join(sections)


def _run(command: str) -> None:
    """Run a command of ``planner`` here; ``RuntimeError`` if it fails (a limit before the proof is none)."""
    from planner.cli.app import main

    with contextlib.redirect_stdout(io.StringIO()):
        code = main(shlex.split(command)[1:])
    if code not in (0, 3):
        raise RuntimeError(f"{command} ends with {code}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("builder-inited", on_builder_inited)
    app.connect("source-read", on_source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
