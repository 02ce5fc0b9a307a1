"""A search among genomes for a high score, and then for a small one: restarts, moves along plateaus, shrinking."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from formulations.contract.instance_space import Domain, Genes, Genome

#: Moves without a higher score before a climb begins elsewhere: from a score of 0, and from one above.
NO_LOSS_PATIENCE, PATIENCE = 4, 250
#: Moves of a climb, those that change nothing included.
_MOVES = 20_000
#: The part of the budget that is kept for making the best instance smaller.
LAST_SHARE = 0.15
#: Random genomes in which a domain has to have one.
TRIES = 2_000
#: Scores that are remembered, so that no genome is evaluated twice; then they are forgotten.
_MEMORY = 10_000
#: Scores this close are equal.
_CLOSE = 1e-9


@dataclass(frozen=True)
class ScoredGenome:
    """A genome with its score, its size, and the evidence for its score."""

    score: float
    size: tuple[int, ...]
    genome: Genome
    evidence: Any


@dataclass
class LossSearch:
    """A search for the highest score, or (where ``enough`` is given) the smallest genome with a score of that.

    ``score(search, genome)`` are the score, below 0 for what has none, and the evidence for it. ``used_share()`` is
    the part of the budget that is used up. ``best`` is what was found; ``worst_of`` has the highest score for each
    number of nodes.
    """

    genes: Genes[Any]
    domains: Mapping[Domain, Any]
    score: "Callable[[LossSearch, Genome], tuple[float, Any]]"
    used_share: Callable[[], float]
    rng: Random
    enough: float | None = None
    best: ScoredGenome | None = None
    worst_of: dict[int, ScoredGenome] = field(default_factory=dict)
    _known: dict[Genome, tuple[float, Any]] = field(default_factory=dict)

    def run(self) -> None:
        """Search until the budget is used up."""
        while self.used_share() < 1 - LAST_SHARE:
            self._climb(self._start())
        if self.best is not None:
            self._shrink(self.best)

    def any_in_domain(self) -> bool:
        """Whether some of `TRIES` random genomes lie in the domains and are instances."""
        found = (self._into_domains(self.genes.random(self.rng)) for _ in range(TRIES))
        return any(genome is not None and self.genes.build(genome) is not None for genome in found)

    def _start(self) -> Genome | None:
        """A random genome, or some moves away from the highest score of a number of nodes."""
        if self.worst_of and self.rng.random() < 0.5:
            genome = self.worst_of[self.rng.choice(sorted(self.worst_of))].genome
            for _ in range(self.rng.randint(1, 4)):
                genome = self.genes.moves(genome, self.rng)
        else:
            genome = self.genes.random(self.rng)
        return self._into_domains(genome)

    def _climb(self, start: Genome | None) -> None:
        """Moves that do not lower the score, until many of them have not raised it, or it is enough."""
        if start is None or len(start.nodes) > self.genes.most_nodes:
            return
        now, idle = self._evaluate(start), 0
        for _ in range(_MOVES):
            patience = PATIENCE if now.score > 0 else NO_LOSS_PATIENCE
            if (
                idle == patience
                or self.used_share() >= 1 - LAST_SHARE
                or (self.enough is not None and self._is_best(now))
            ):
                break
            moved = self._into_domains(self.genes.moves(now.genome, self.rng))
            if moved is None or moved == now.genome or len(moved.nodes) > self.genes.most_nodes:
                continue
            found = self._evaluate(moved)
            idle = 0 if found.score > now.score + _CLOSE else idle + 1
            if found.score >= now.score - _CLOSE:
                now = found
        if self._is_best(now):
            self._shrink(now)

    def _is_best(self, found: ScoredGenome) -> bool:
        """Whether it is better than what is known, or as good and smaller."""
        if found.score <= 0 or (self.enough is not None and found.score < self.enough - _CLOSE):
            return False
        return self.best is None or self._rank(found) < self._rank(self.best)

    def _rank(self, found: ScoredGenome) -> tuple[float, tuple[int, ...]]:
        return -round(found.score / _CLOSE) if self.enough is None else 0, found.size

    def _shrink(self, found: ScoredGenome) -> None:
        """Steps to smaller genomes, as long as one keeps the score, or as much of it as is enough."""
        kept = (found.score if self.enough is None else self.enough) - _CLOSE
        shorter: ScoredGenome | None = found
        while shorter is not None:
            found = shorter
            if self._is_best(found):
                self.best = found
            shorter = self._step(found, kept)
        if self.enough is not None and self.best is not None:  # larger ones are of no use any more
            self.genes = replace(self.genes, most_nodes=self.best.size[0])

    def _step(self, found: ScoredGenome, kept: float) -> ScoredGenome | None:
        for genome in self.genes.smaller(found.genome):
            if self.used_share() >= 1:
                return None
            held = self._into_domains(genome)
            if held is None or self._size(held) >= found.size:
                continue
            smaller = self._evaluate(held)
            if smaller.score >= kept:
                return smaller
        return None

    def _evaluate(self, genome: Genome) -> ScoredGenome:
        if genome not in self._known:
            if len(self._known) >= _MEMORY:
                self._known.clear()
            self._known[genome] = self.score(self, genome)
        score, evidence = self._known[genome]
        found = ScoredGenome(score, self._size(genome), genome, evidence)
        best = self.worst_of.get(found.size[0])
        if found.score > 0 and (best is None or (-found.score, found.size) < (-best.score, best.size)):
            self.worst_of[found.size[0]] = found
        return found

    def _size(self, genome: Genome) -> tuple[int, ...]:
        return tuple(self.genes.size(genome).values())

    def _into_domains(self, genome: Genome) -> Genome | None:
        """The genome in all domains; ``None`` where they exclude each other."""
        return within_domains(self.genes, self.domains, genome)


def within_domains(genes: Genes[Any], domains: Mapping[Domain, Any], genome: Genome) -> Genome | None:
    """The tidy genome in all domains that is closest; ``None`` if they exclude each other, or the limits it."""
    found: Genome | None = genes.tidy(genome)
    for domain, value in domains.items():
        found = _into(genes, domain, value, found)
    if found is None or not genes.allows(found):
        return None
    return found if all(_into(genes, domain, value, found) == found for domain, value in domains.items()) else None


def _into(genes: Genes[Any], domain: Domain, value: Any, genome: Genome | None) -> Genome | None:
    moved = None if genome is None else domain.into(genome, value)
    return None if moved is None else genes.tidy(moved)
