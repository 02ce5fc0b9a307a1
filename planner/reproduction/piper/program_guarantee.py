"""What Piper's program promises where the TMPCs of a node differ little in time, and instances that come close to it.

docs/mining.md ("What Piper can lose") has the statement and its proof: the program takes at most rho (`slowdown`)
times the optimum, and no smaller factor will do for re-ranking and sorting once (`hard_for_slowdown`).

Source: reconstructed (Piper has no such statement).
"""

import math

from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc


def slowdown(instance: StageInstance) -> float:
    """rho: at least 1; infinite if some time is 0 and another TMPC's of the same node and degree is not.

    Raises
    ------
    ValueError
        If TMPCs of one node and degree have different weights or synchronisation volumes.
    """
    rho = 1.0
    for layer in instance.layers:
        for found in layer.tmpcs.values():
            if any(_exchange_of(x) != _exchange_of(found[0]) for x in found):
                raise ValueError(f"TMPCs of node {layer.id} differ in weights or synchronisation volumes")
            times = [x.time for x in found] or [0.0]
            if max(times) > min(times):
                rho = max(rho, max(times) / min(times) if min(times) > 0 else math.inf)
    return rho


def _exchange_of(x: Tmpc) -> tuple[object, ...]:
    return x.weight_bytes, dict(x.sync_forward_bytes), dict(x.sync_backward_bytes)


def hard_for_slowdown(scale: int, rho: float = 4 / 3) -> StageInstance:
    """Two nodes on one stage: Piper takes (rho ``scale`` + 1) / (``scale`` + rho) times the optimum, for scale > 1.

    All but one byte fits. The large node saves ``scale`` + 1 bytes for (rho - 1) ``scale``, more for its time than the
    small one, which saves the byte for rho - 1. The times are three times these numbers: whole ones, if rho is 4/3.
    """
    layers = []
    for number, (time, held) in enumerate(((3 * scale, scale + 1), (3, 1))):
        slow = round(rho * time) if rho == 4 / 3 else rho * time
        tmpcs = (Tmpc("plain", float(time), 0.0, 0.0, float(held)), Tmpc("recompute", float(slow), 0.0, 0.0, 0.0))
        layers.append(Layer(number, {1: tmpcs}))
    return StageInstance(f"hard-for-slowdown-{scale}", tuple(layers), (), 1, float(scale + 1), 1.0, 1)
