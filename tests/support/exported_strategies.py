"""Training strategies to export."""

from typing import Any


def strategy(schedule: str, chunks: list[list[int]], V: int = 1, dp: int = 1) -> dict[str, Any]:
    """A plan of chain8-strategy in which all layers but the last are kept."""
    tmpcs = {str(v): "keep" for chunk in chunks for v in chunk}
    degrees = {"pp_degree": len(chunks) // V, "tp_degree": 1, "dp_degree": dp, "virtual_stages": V}
    return {**degrees, "schedule": schedule, "chunks": chunks, "tmpcs": tmpcs}


INTERLEAVED = strategy("interleaved", [[0, 1, 2], [3], [4, 5], [6, 7]], V=2)
