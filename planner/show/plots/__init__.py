"""Pictures as library functions: axes in, axes out, units on the axes, readable in grey.

Matplotlib is an extra (``pip install 'dnn-planner[plot]'``); only `planner.show.plots.files` imports it. `panels` knows
what to draw of a plan of each family; everything else draws plain numbers.
"""

from planner.show.plots.charts import bars, frontier, gap_histogram, gap_over_time, losses
from planner.show.plots.networks import bandwidth, graph, mapping, tiling, topology
from planner.show.plots.panel import Panel
from planner.show.plots.panels import panels
from planner.show.plots.schedules import gantt

__all__ = [
    "Panel",
    "bandwidth",
    "bars",
    "frontier",
    "gantt",
    "gap_histogram",
    "gap_over_time",
    "graph",
    "losses",
    "mapping",
    "panels",
    "tiling",
    "topology",
]
