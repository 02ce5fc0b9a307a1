"""Pictures as library functions: axes in, axes out, units on the axes, colours from `planner.display.palette`.

Matplotlib is an extra (``pip install 'dnn-planner[plot]'``); only `planner.display.plots.files` makes figures. `panels`
knows what to draw of a plan of each family; everything else draws plain numbers or one picture of
`formulations.figures.plan_figures`.
"""

from planner.display.palette import DARK, LIGHT, PRINT
from planner.display.plots.charts import bars, frontier, gap_histogram, gap_over_time, losses, over_devices
from planner.display.plots.files import Sheet, figure
from planner.display.plots.graphs import graph
from planner.display.plots.networks import bandwidth, matrix, network, tiles, topology
from planner.display.plots.panel import Panel
from planner.display.plots.panels import panels, panels_of
from planner.display.plots.stages import gantt, stack, strip
from planner.display.plots.tradeoffs import heat, options, totals

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
