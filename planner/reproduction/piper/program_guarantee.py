"""What Piper's program promises where the TMPCs of a node differ little in time, and instances that come close to it.

| Symbol | Here                                                                                    |
|--------|-----------------------------------------------------------------------------------------|
| rho    | largest quotient of the times of two TMPCs of one node at one degree (`slowdown`)       |
| P, F_i | a best plan; what stage i of P pays beside the times of its TMPCs, in its own degrees   |

**Statement.** Let the TMPCs of each (node, t) have the same weights and synchronisation volumes. If the instance has a
plan, the program finds one, and its time is at most rho times the optimum: with the knapsack rule re-ranking, sorting
once (where it applies) or truncating, and with either cost model.

**Proof.** Take stage i of P with its nodes S, degrees d and t, and s, the sum of its own and all later stages' d. The
program prices a stage with exactly these nodes, degrees and s. Every rule starts from the fastest TMPCs, moves one node
at a time to a TMPC that holds less, and stops when the stage fits or no TMPC of any node holds less. It ends with a
choice Y that fits: the choice X of P fits, so the lightest one does, which is where it would end at the latest.
Transfers and the synchronisation of weights do not depend on the choice, so d times the stage's time is F_i plus the
sum of the nodes' times, and F_i >= 0. Each node takes at most rho times its fastest TMPC with Y, and at least that with
X. Hence the stage takes at most (F_i + rho * sum of X) / d <= rho times what it takes in P. The program minimises over
all sequences of stages, P's included, so the slowest stage of its plan takes at most rho times the slowest one of P.

The optimum's own stages serve in the proof alone: the program may return others. With recomputation, which repeats the
forward pass, a third of both passes, rho is 4/3.

**The factor is the best one** for re-ranking and sorting once: `hard_for_slowdown` comes arbitrarily close.

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
