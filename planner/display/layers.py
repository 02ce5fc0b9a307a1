"""Where the nodes of an acyclic graph stand: layer by layer, with few crossings, by a library for graphs."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from formulations.contract.figures.plan_figures import Graph

#: A layer, counted from the inputs on, and a place across it, in steps of one node.
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The place of each node by its id, and for each arc, in the order of the picture's, the points on its way."""

    places: Mapping[int, Point]
    routes: Sequence[Sequence[Point]]

    @property
    def depth(self) -> float:
        """The last layer."""
        return max((x for x, _ in self.places.values()), default=0.0)


def place_in_layers(graph: Graph) -> Layout:
    """Nodes in layers, inputs in layer 0, and arcs that go around the nodes between.

    igraph's layout after Sugiyama, Tagawa and Toda; where igraph is not installed, layers as networkx finds them, in
    which nodes stand in the order of their ids, and straight arcs.
    """
    ids = [node.id for node in graph.nodes]
    number = {name: place for place, name in enumerate(ids)}
    arcs = [(number[arc.source], number[arc.target]) for arc in graph.arcs]
    depths = _depths(len(ids), arcs)
    if importlib.util.find_spec("igraph") is not None:
        places, routes = _by_igraph(depths, arcs)
    else:
        places = _in_order(depths)
        routes = [[places[source], places[target]] for source, target in arcs]
    middle = sum(y for _, y in places) / max(1, len(places))
    return Layout(
        {name: (x, y - middle) for name, (x, y) in zip(ids, places, strict=True)},
        [[(x, y - middle) for x, y in route] for route in routes],
    )


def _by_igraph(depths: Sequence[int], arcs: Sequence[tuple[int, int]]) -> tuple[list[Point], list[list[Point]]]:
    """Long arcs pass through a point of their own in every layer between, which no node takes."""
    from igraph import Graph as Vertices

    made = Vertices(n=len(depths), edges=arcs, directed=True)
    found = made.layout_sugiyama(layers=list(depths), maxiter=200)
    places = [(float(y), float(x)) for x, y in found.coords]
    between = [[(float(y), float(x)) for x, y in points] for points in found.edge_routing]
    routes = [[places[a], *points, places[b]] for (a, b), points in zip(arcs, between, strict=True)]
    return places, routes


def _depths(count: int, arcs: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node from an input."""
    import networkx

    graph = networkx.DiGraph(arcs)
    graph.add_nodes_from(range(count))
    depth = {node: place for place, own in enumerate(networkx.topological_generations(graph)) for node in own}
    return [depth[node] for node in range(count)]


def _in_order(depths: Sequence[int]) -> list[Point]:
    places = []
    for node, depth in enumerate(depths):
        layer = [other for other, own in enumerate(depths) if own == depth]
        places.append((float(depth), layer.index(node) - (len(layer) - 1) / 2))
    return places
