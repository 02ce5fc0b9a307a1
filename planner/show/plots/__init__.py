"""Pictures as library functions: axes in, axes out, units on the axes, colours from `planner.show.palette`.

Matplotlib is an extra (``pip install 'dnn-planner[plot]'``); only `planner.show.plots.files` makes figures. `panels`
knows what to draw of a plan of each family; everything else draws plain numbers or one picture of
`formulations.breakdown`.
"""

from planner.show.palette import DARK, LIGHT, PRINT
from planner.show.plots.charts import bars, frontier, gap_histogram, gap_over_time, losses, over_devices
from planner.show.plots.files import Sheet, figure
from planner.show.plots.graphs import graph
from planner.show.plots.networks import bandwidth, matrix, network, tiles, topology
from planner.show.plots.panel import Panel
from planner.show.plots.panels import panels, panels_of
from planner.show.plots.stages import gantt, stack, strip
from planner.show.plots.tradeoffs import heat, options, totals

__all__ = [
    "DARK",
    "LIGHT",
    "PRINT",
    "Panel",
    "Sheet",
    "bandwidth",
    "bars",
    "figure",
    "frontier",
    "gantt",
    "gap_histogram",
    "gap_over_time",
    "graph",
    "heat",
    "losses",
    "matrix",
    "network",
    "options",
    "over_devices",
    "panels",
    "panels_of",
    "stack",
    "strip",
    "tiles",
    "topology",
    "totals",
]
