"""The quantities of a plan that requirements may speak of: none, as no model expresses any."""

from __future__ import annotations

from formulations.contract.quantities import Quantity

VOCABULARY: tuple[Quantity, ...] = ()
