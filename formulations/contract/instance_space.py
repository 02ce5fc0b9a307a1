"""Small instances made of whole numbers, for searches among them: drawn at random, changed, and made smaller.

A problem says which numbers its instances consist of and builds an instance from them (`Genes`); what a search does
with them is the same for all problems.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Generic, TypeVar

Instance = TypeVar("Instance")
Numbers = tuple[int, ...]

#: The parts of a size that every problem has: first the nodes, last the sum of all numbers that count nothing.
NODES, NUMBERS = "nodes", "numbers"


@dataclass(frozen=True)
class Gene:
    """A whole number from ``low`` to ``high``; ``counts`` is the part of the size that it adds to (`Genes.size`)."""

    name: str
    high: int
    low: int = 0
    counts: str = NUMBERS


@dataclass(frozen=True)
class Genome:
    """The numbers of an instance: of the whole, of each node, and of each edge (source < target)."""

    whole: Numbers
    nodes: tuple[Numbers, ...]
    edges: tuple[tuple[int, int, Numbers], ...] = ()


@dataclass(frozen=True)
class Domain:
    """A class of instances that a search can be held to.

    ``into(genome, value)`` is the closest genome of the domain, or ``None``; ``parse`` reads the value of
    ``NAME=VALUE`` (``ValueError`` with the rule), and is ``None`` for a domain without one.
    """

    name: str
    says: str
    into: Callable[[Genome, Any], Genome | None]
    parse: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class Genes(Generic[Instance]):
    """Which numbers an instance consists of, and how it is built.

    ``most_nodes``: instances have 1 to so many nodes.
    ``whole``, ``node``, ``edge``: the numbers of the whole instance, of each node, of each edge; ``edge`` is ``None``
    where nodes have no edges, as in a chain.
    ``build``: the instance, or ``None`` if these numbers make none.
    ``tidy``: the same instance with what does not matter at its least, so that equal instances have equal genomes.
    ``plant``: the genome with a limit, such as memory, that is neither always out of reach nor always met.
    """

    most_nodes: int
    whole: tuple[Gene, ...]
    node: tuple[Gene, ...]
    edge: tuple[Gene, ...] | None
    build: Callable[[Genome], Instance | None]
    tidy: Callable[[Genome], Genome] = lambda genome: genome
    plant: Callable[[Genome, Random], Genome] = lambda genome, _: genome

    def random(self, rng: Random) -> Genome:
        """A random genome; often some numbers are at their least everywhere, so that few of them play a part."""
        count = max(rng.randint(1, self.most_nodes), rng.randint(1, self.most_nodes))
        share = rng.choice((0.0, 0.0, 0.3, 0.6))
        node = [replace(gene, high=gene.low) if rng.random() < share else gene for gene in self.node]
        nodes = tuple(_draw(node, rng) for _ in range(count))
        density = rng.choice((0.2, 0.5, 0.9))
        edges = tuple(
            (u, v, _draw(self.edge, rng))
            for u in range(count)
            for v in range(u + 1, count)
            if self.edge is not None and rng.random() < (density if v > u + 1 else 0.8)
        )
        return self.plant(Genome(_draw(self.whole, rng), nodes, edges), rng)

    def moves(self, genome: Genome, rng: Random) -> Genome:
        """The genome after one to three random changes."""
        for _ in range(rng.choice((1, 1, 2, 3))):
            kinds: list[Callable[[Genome, Random], Genome]] = [self._change_node] * 4
            kinds += [self._change_whole, self._grow, self._shrink, self.plant, _exchange]
            kinds += [self._change_edge] * (0 if self.edge is None else 2)
            genome = rng.choice(kinds)(genome, rng)
        return genome

    def smaller(self, genome: Genome) -> Iterator[Genome]:
        """Genomes one step smaller: without a node or an edge, or with a lower number, alone or with a limit."""
        if len(genome.nodes) > 1:
            yield from (_without(genome, node) for node in range(len(genome.nodes)))
        for number in range(len(genome.edges)):
            yield replace(genome, edges=_set(genome.edges, number, []))
        yield from (replace(genome, whole=lower) for lower in _lower(self.whole, genome.whole))
        for number, node in enumerate(genome.nodes):
            for lower in _lower(self.node, node):
                yield replace(genome, nodes=_set(genome.nodes, number, [lower]))
        for number, (u, v, values) in enumerate(genome.edges):
            for lower in _lower(self.edge or (), values):
                yield replace(genome, edges=_set(genome.edges, number, [(u, v, lower)]))
        for limit, number in itertools.product(range(len(self.whole)), range(len(genome.nodes))):
            yield from self._both_lower(genome, limit, number)

    def _both_lower(self, genome: Genome, limit: int, number: int) -> Iterator[Genome]:
        """A number of the whole, such as memory, and one of a node lower by the same: to its least, or by one."""
        whole, node = self.whole[limit], genome.nodes[number]
        room = genome.whole[limit] - whole.low if whole.counts == NUMBERS else 0
        for place, gene in enumerate(self.node):
            most = min(node[place] - gene.low, room) if gene.counts == NUMBERS else 0
            for step in sorted({most, 1} if most > 0 else (), reverse=True):
                lower = _set(genome.nodes, number, [_set(node, place, [node[place] - step])])
                yield replace(genome, whole=_set(genome.whole, limit, [genome.whole[limit] - step]), nodes=lower)

    def size(self, genome: Genome) -> dict[str, int]:
        """How large an instance is, the parts that matter most first: nodes, what genes count, edges, all numbers."""
        sums: Counter[str] = Counter()
        for genes, values in self._parts(genome):
            for gene, value in zip(genes, values, strict=True):
                sums[gene.counts] += value
        counted = dict.fromkeys(gene.counts for gene in (*self.whole, *self.node, *(self.edge or ())))
        edges = {} if self.edge is None else {"edges": len(genome.edges)}
        own = {name: sums[name] for name in counted if name != NUMBERS}
        return {NODES: len(genome.nodes), **own, **edges, NUMBERS: sums[NUMBERS]}

    def allows(self, genome: Genome) -> bool:
        """Whether every number lies within its limits."""
        return len(genome.nodes) <= self.most_nodes and all(
            gene.low <= value <= gene.high
            for genes, values in self._parts(genome)
            for gene, value in zip(genes, values, strict=True)
        )

    def _parts(self, genome: Genome) -> Iterator[tuple[Sequence[Gene], Numbers]]:
        yield self.whole, genome.whole
        yield from ((self.node, node) for node in genome.nodes)
        yield from ((self.edge or (), values) for _, _, values in genome.edges)

    def _change_whole(self, genome: Genome, rng: Random) -> Genome:
        return replace(genome, whole=_change(self.whole, genome.whole, genome.whole, rng))

    def _change_node(self, genome: Genome, rng: Random) -> Genome:
        number = rng.randrange(len(genome.nodes))
        changed = _change(self.node, genome.nodes[number], rng.choice(genome.nodes), rng)
        return replace(genome, nodes=_set(genome.nodes, number, [changed]))

    def _change_edge(self, genome: Genome, rng: Random) -> Genome:
        """An edge more, one less, or another number of one."""
        if len(genome.nodes) < 2:
            return genome
        u, v = sorted(rng.sample(range(len(genome.nodes)), 2))
        known = {(u, v): values for u, v, values in genome.edges}
        values = known.pop((u, v), None)
        if values is None:
            known[u, v] = _draw(self.edge, rng)
        elif self.edge and rng.random() < 0.7:
            known[u, v] = _change(self.edge, values, values, rng)
        return replace(genome, edges=tuple(sorted((*pair, values) for pair, values in known.items())))

    def _grow(self, genome: Genome, rng: Random) -> Genome:
        """A node more, a new one or the copy of one, anywhere in the order."""
        if len(genome.nodes) >= self.most_nodes:
            return genome
        place = rng.randint(0, len(genome.nodes))
        node = rng.choice(genome.nodes) if rng.random() < 0.5 else _draw(self.node, rng)
        edges = {(u + (u >= place), v + (v >= place)): values for u, v, values in genome.edges}
        if self.edge is not None:
            for other in range(len(genome.nodes) + 1):
                if other != place and rng.random() < 0.3:
                    edges[min(place, other), max(place, other)] = _draw(self.edge, rng)
        nodes = (*genome.nodes[:place], node, *genome.nodes[place:])
        return Genome(genome.whole, nodes, tuple(sorted((*pair, values) for pair, values in edges.items())))

    def _shrink(self, genome: Genome, rng: Random) -> Genome:
        return genome if len(genome.nodes) == 1 else _without(genome, rng.randrange(len(genome.nodes)))


@dataclass(frozen=True)
class InstanceSpace(Generic[Instance]):
    """The small instances of a problem, as a search for losses and random tests draw them.

    ``limits`` are the names that ``--max`` takes, with their values where none is given; ``nodes`` and ``number`` (the
    largest number in an instance) are among them. ``genes(limits)`` are the instances within limits.
    """

    limits: Mapping[str, int]
    genes: Callable[[Mapping[str, int]], Genes[Instance]]
    domains: tuple[Domain, ...] = ()


def _uniform(genome: Genome, _value: Any) -> Genome:
    return replace(genome, nodes=(genome.nodes[0],) * len(genome.nodes))


def positive_times(*places: int) -> Domain:
    """The domain in which the numbers at these places of a node are at least 1."""

    def into(genome: Genome, _value: Any) -> Genome:
        nodes = (
            tuple(max(1, each) if place in places else each for place, each in enumerate(node)) for node in genome.nodes
        )
        return replace(genome, nodes=tuple(nodes))

    return Domain("positive-times", "every node takes time", into)


#: All nodes are the same.
UNIFORM_LAYERS = Domain("uniform-layers", "all nodes have the same numbers", _uniform)


def _draw(genes: Sequence[Gene] | None, rng: Random) -> Numbers:
    return tuple(_value(gene, rng) for gene in genes or ())


def _value(gene: Gene, rng: Random) -> int:
    if gene.high - gene.low == 1:  # mostly there
        return gene.low + (rng.random() < 0.9)
    kind = rng.randrange(4)
    if kind < 2:
        return (gene.low, gene.high)[kind]
    return rng.randint(gene.low, min(gene.high, gene.low + 3) if kind == 2 else gene.high)


def _change(genes: Sequence[Gene], values: Numbers, other: Numbers, rng: Random) -> Numbers:
    """The values with one of them drawn anew, one more or less, or that of another part."""
    free = [place for place, gene in enumerate(genes) if gene.high > gene.low]
    if not free:
        return values
    place = rng.choice(free)
    gene, now = genes[place], values[place]
    value = rng.choice((now - 1, now + 1, other[place], _value(gene, rng)))
    return _set(values, place, [min(gene.high, max(gene.low, value))])


def _lower(genes: Sequence[Gene], values: Numbers) -> Iterator[Numbers]:
    """The values with one of them at its least, halfway there, or one less."""
    for place, (gene, value) in enumerate(zip(genes, values, strict=True)):
        for lower in sorted({gene.low, (gene.low + value) // 2, value - 1}):
            if gene.low <= lower < value:
                yield _set(values, place, [lower])


def _exchange(genome: Genome, rng: Random) -> Genome:
    """Two nodes in each other's place; the edges stay where they are."""
    u, v = rng.randrange(len(genome.nodes)), rng.randrange(len(genome.nodes))
    nodes = list(genome.nodes)
    nodes[u], nodes[v] = nodes[v], nodes[u]
    return replace(genome, nodes=tuple(nodes))


def _without(genome: Genome, node: int) -> Genome:
    edges = tuple((u - (u > node), v - (v > node), values) for u, v, values in genome.edges if node not in (u, v))
    return Genome(genome.whole, _set(genome.nodes, node, []), edges)


def _set(values: Sequence[Any], place: int, new: Sequence[Any]) -> tuple[Any, ...]:
    return (*values[:place], *new, *values[place + 1 :])
