"""The command on whole tables of optima: ``frontier``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from planner.cli.common import NO_PROOF, Instance, Reading, Search, Threads, leave
from planner.cli.declared import flag, option

if TYPE_CHECKING:
    from planner.analysis.frontier import Optima


@dataclass(frozen=True)
class _Reading(Reading):
    json: Annotated[bool, flag("--json", "print one JSON object with the table")] = False


_READING = _Reading()


def frontier_command(
    instance: Instance,
    out: Annotated[str | None, option("FILE.csv", "write the table, a line for each k")] = None,
    memories: Annotated[str | None, option("SIZE,...", "by memory of a device instead of by micro-batches")] = None,
    more_devices: Annotated[int | None, option("N", "N devices more than it has", min=0)] = None,
    picture: Annotated[str | None, option("FILE.png|svg", "draw it", "--plot")] = None,
    time_limit: Annotated[float | None, option("SECONDS", "wall time")] = None,
    threads: Threads = 1,
    view: _Reading = _READING,
    **settings: Any,
) -> None:
    """Find every optimum up to K devices and N micro-batches in one run, or by memory (stage partitioning)."""
    from planner.analysis.frontier import by_memory, frontier, parse_memories
    from planner.display.optima import show_optima, writes
    from planner.display.plots.files import require_drawable
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import defer

    refuse_outputs({"--out": out, "--plot": picture}, instance)
    require_drawable(picture)
    limits = Search(time_limit, threads=threads).limits()
    declared = view.load(instance, settings)
    found: Optima
    with defer():
        if memories is None and more_devices is None:
            found = frontier(declared, limits=limits, notice=view.note)
        else:
            wanted = () if memories is None else parse_memories(memories)
            found = by_memory(declared, wanted, more_devices or 0, limits=limits, notice=view.note)
        view.show(found, show_optima)
    write_all(*writes(found, out, picture))
    leave(found.signal, NO_PROOF if found.times is None else 0)
