"""Published inputs recognised by their content, whatever their file is called and however it is formatted.

Only fingerprints are kept here; the data stays with its authors.
"""

import hashlib
import json
from collections.abc import Sequence

from instances.problems.stage_partitioning import Edge, Layer

UNIT_WARNING = (
    "times are in milliseconds while the bandwidth is taken per declared time unit: if it is meant per second, "
    "communication is about 1000 times too cheap (kept as published; --fix-units converts)"
)


def fingerprint(layers: Sequence[Layer], edges: Sequence[Edge]) -> str:
    """SHA-256 of nodes and edges; the order of nodes, edges and keys, names and number formats do not matter."""
    nodes = [
        [
            layer.id,
            [
                [
                    degree,
                    [
                        [x.id, x.time, x.weight_bytes, x.activation_bytes, x.static_bytes]
                        + [
                            sorted(((node, volume) for node, volume in volumes.items()), key=str)
                            for volumes in (x.sync_forward_bytes, x.sync_backward_bytes)
                        ]
                        for x in tmpcs
                    ],
                ]
                for degree, tmpcs in sorted(layer.tmpcs.items())
            ],
        ]
        for layer in sorted(layers, key=lambda layer: str(layer.id))
    ]
    links = sorted(((edge.source, edge.target, edge.bytes) for edge in edges), key=str)
    return hashlib.sha256(json.dumps([nodes, links]).encode()).hexdigest()


#: The 32-layer BERT of Piper's release (times in seconds).
BERT32 = "ee6800afe03eca59625bd24e6686a8c609209b3a0386c8faae4b2dd43f4fffd4"
#: GNMT and Resnet50 of Piper's release: times in milliseconds, bandwidth in bytes per second.
MILLISECONDS = frozenset(
    {
        "ba71b2016800705e403e8d5b0785227cd792521a9779ced873d70ce9f4590d3e",
        "e760bf853b6c713459cf99b13c8c92851e161822218ffee02de2971d12f376b1",
    }
)
