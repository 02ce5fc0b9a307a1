"""What the devices of a node exchange where they share the tokens of a sample, or experts: found in the graph.

Keys and values are those of attention in one op, before heads are repeated for the queries. Experts are the matrices of
grouped products. Attention and experts that are written op by op are not found. Source: reconstructed; the bytes are
those of `instances.generators.decoder`, sent and received.
"""

from typing import Any

from planner.training.capture.captured import Captured, Node
from planner.training.capture.ops import ATTENTION, PRODUCTS, aten
from planner.training.capture.sharding import Walk


def exchanged_by_node(captured: Captured, node: Node) -> dict[str, float]:
    """Fields of `Exchanged` that are not 0: bytes in a micro-batch's forward pass, and how many experts there are."""
    walk = Walk(captured, node)
    trained = {each.name: each for each in node.parameters if each.trained}
    kv = tokens = 0.0
    experts: dict[str, float] = {}
    counts: set[int] = set()
    for op in (walk.graph[name] for name in node.ops):
        if op.target in ATTENTION:
            kv += 2 * sum(_least_bytes(captured, each) for each in op.args[1:3])
        if op.target is aten._grouped_mm.default:
            found = [name for name in walk.reads(op.args[PRODUCTS[op.target]]) if name in trained]
            if found and not experts:
                tokens = 2 * captured.costs[op.args[0].name].output_bytes
            experts |= {name: trained[name].size for name in found}
            counts |= {trained[name].shape[0] for name in found}
    made = {"kv_bytes": kv}
    if len(counts) == 1:
        made |= {"token_bytes": tokens, "expert_weight_bytes": sum(experts.values()), "experts": counts.pop()}
    return {name: value for name, value in made.items() if value}


def _least_bytes(captured: Captured, op: Any) -> float:
    """Of a tensor, before ops that take it alone have repeated or reshaped it."""
    least: float = captured.costs[op.name].output_bytes
    while len(op.all_input_nodes) == 1 and op.all_input_nodes[0].op == "call_function" and op.target not in PRODUCTS:
        op = op.all_input_nodes[0]
        least = min(least, captured.costs[op.name].output_bytes)
    return least
