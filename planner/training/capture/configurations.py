"""What the nodes of a captured model cost on devices, in every configuration on offer.

One sample is one micro-batch, forward and backward; t devices share a node. Symbols: F operations and m bytes moved in
a forward pass, P bytes of parameters, A bytes of a tensor between devices.

* Time: every op takes the longer of F / (peak ``efficiency``) and m / (memory bandwidth ``memory_efficiency``); a
  backward pass takes twice the forward pass (once where only the input or only the weights of an op have a gradient,
  not at all where neither has), and writes and reads the gradient of a table of embeddings besides, 2 P.
* Gradients of weights (W): products with trained weights once, whatever is exchanged.
* fp8: products with weights of layers that repeat (roles decoder and encoder), but for routers, have that peak; all
  else, head and attention's core as well, is as in bf16, and so is what is held. Casts are left out.
* States: bytes of weights, gradients and optimiser for each byte of parameters; of frozen ones, of weights alone.
* t > 1, by columns and rows (Megatron-LM): ops that are shared, and what they save, take 1/t of each; others the
  whole. All-reduces of 2 (t-1)/t A bytes over the links of the server: forward the outputs of row products, backward
  the inputs of column products. With sequence parallelism the rest of a block takes 1/t as well; its gathers and
  scatters together are as large as the all-reduces, and backward passes gather the inputs of column products again.
  A norm behind a shared node has its tokens apart, too.
* Recomputation: one forward pass more; inputs alone are kept for each micro-batch in flight.
* Selective recomputation: the forward pass of the attention's core, or of the MLP with what its devices exchange, once
  more; kept are what the part takes, and what others keep of it (`recomputed`).
* Working set: what the backward pass of a node has for a moment (`working_set`), and what is computed again for it. A
  device needs the largest of its nodes, once. The most that two nodes need is taken from the memory of every device (at
  most a 25th of it), and what a node needs beyond counts as its states: never too little.
* ``zero1``, ``zero2``, ``zero3``: the t devices share the samples of a micro-batch, not the products, and each holds
  1/t of the optimiser's states, then of the gradients, then of the weights. With N micro-batches in a batch the devices
  exchange (t-1)/t P bytes: of gradients and weights once in a batch each (1); of gradients for every micro-batch, of
  weights once (2); of weights twice and gradients once for every micro-batch (3). What is gathered of one layer at a
  time is left out of the memory.

Source: reconstructed from Megatron-LM (columns and rows), Korthikanti et al. (sequence parallelism, recomputation) and
ZeRO (states). Every rate and efficiency is declared; the defaults of the efficiencies are guesses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instances.generators.hardware import DTYPES, Hardware
from instances.generators.transformer import RECOMPUTE, SELECTIVE, SELECTIVE_MLP, SEQUENCE, VANILLA
from instances.problems.stage_partitioning import Tmpc
from instances.rules import NodeId
from planner.training.capture.captured import Captured, Node, Parameter, edge_bytes
from planner.training.capture.choices import Choices, Work
from planner.training.capture.experts import exchanged_by_node
from planner.training.capture.ops import LOOKUPS
from planner.training.capture.recomputed import Part, Parts
from planner.training.capture.sharding import (
    Sharding,
    exchanged_bytes,
    parameters_of,
    sharding,
    takes_tokens_apart,
    weight_products,
)
from planner.training.capture.working_set import working_bytes

#: Bytes of gradients and of the optimiser's states for each byte of parameters: Adam, with 32-bit weights of its own
#: where those of the model are 16 bits.
GRADIENTS = 1.0
OPTIMISER = {2: 6.0, 4: 2.0, 8: 2.0}
#: Roles of layers that multiply in fp8: the head is left out by torchtitan 0.3.0 (models/llama3/config_registry.py)
#: and Megatron core 0.19.2, whose output layer is none of Transformer Engine's (models/gpt/gpt_model.py).
_LAYERS = ("decoder", "encoder")
#: The most of a device's memory that is left for working sets: beyond it, recomputing layers one by one would take room
#: from plans that do not recompute.
_RESERVE = 1 / 25


@dataclass(frozen=True)
class Share:
    """What one device has of a node.

    ``saved_bytes`` of a micro-batch, ``inside_bytes`` those of them that were made in the node; ``input_bytes`` come
    from other nodes. Seconds of each pass, on the links, and on the links in a forward pass. ``working_bytes`` of a
    backward pass.
    """

    parameter_bytes: float
    trained_bytes: float
    input_bytes: float
    saved_bytes: float
    inside_bytes: float
    forward_s: float
    backward_s: float
    link_s: float = 0.0
    again_link_s: float = 0.0
    working_bytes: float = 0.0


class Configurations:
    """The TMPCs of the nodes of a captured model."""

    def __init__(self, captured: Captured, hardware: Hardware, work: Work, choices: Choices) -> None:
        self.captured, self.hardware, self.work, self.choices = captured, hardware, work, choices
        self.rates = {name: peak * choices.efficiency for name, peak in hardware.peak_flop_per_s.items()}
        self.memory_rate = hardware.memory_bandwidth_bytes_per_s * choices.memory_efficiency
        self.link_rate = hardware.inner_bandwidth_bytes_per_s * choices.link_efficiency
        self.graph = {each.name: each for each in captured.module.graph.nodes}
        self.parameters = {each.name: each for node in captured.nodes for each in node.parameters}
        #: The type of an op's products.
        self.types = dict.fromkeys(self.graph, "bf16" if work.dtype == "fp8" else work.dtype)
        for node in captured.nodes if work.dtype == "fp8" else ():
            if node.role in _LAYERS:
                self.types |= dict.fromkeys(weight_products(captured, node, routers=False), "fp8")
        self.taken = _first_taken(captured)
        #: By node, what is computed again alone, by the name of its TMPC.
        self.parts: dict[int, dict[str, Part]] = {}
        if choices.selective:
            of = Parts(captured)
            for node in captured.nodes:
                own = {SELECTIVE: of.attention_core(node), SELECTIVE_MLP: of.mlp(node)}
                self.parts[node.id] = {name: part for name, part in own.items() if part is not None}
        self.working = {node.id: working_bytes(captured, node) for node in captured.nodes}
        #: Bytes of every device's memory that are left for the working set of one node.
        self.reserve = min(self._most_of_two(), hardware.memory_bytes * _RESERVE)

    def of(self, node: Node) -> dict[int, tuple[Tmpc, ...]]:
        """All TMPCs of a node, by degree; every degree has one, so that a stage can have it for all its nodes."""
        rule = sharding(self.captured, node)
        return {t: tuple(self._at(node, t, rule)) for t in self.choices.degrees}

    def weight_times(self, node: Node, offered: Mapping[int, Sequence[Tmpc]]) -> dict[int, float]:
        """By degree, what gradients of the weights of a node's products take (W); none where tables are looked up.

        At most two thirds of the time of each TMPC on offer, as a backward pass has no more.
        """
        rule, found = sharding(self.captured, node), {}
        for t, tmpcs in {} if self.tables(node) else offered.items():
            shared = rule.shared if t > 1 and rule is not None and rule.allows(t) else set()
            trained = [op for op in node.ops if self.captured.costs[op].gradient and self._trains(op)]
            time = sum(self.seconds(op, 1 / t if op in shared else 1.0) for op in trained)
            found[t] = min(time, *(2 / 3 * x.time for x in tmpcs))
        return found

    def sources(self, node: Node) -> dict[str, float]:
        """Where the times of a node come from, of a forward pass on one device.

        Operations, and bytes that its ops read and write; seconds of those ops that take the time of their operations,
        and of those that take the time of their bytes; bytes that are summed where devices share the node, and those
        that they exchange where they share tokens or experts.
        """
        ops = {op: self.captured.costs[op] for op in node.ops}
        start = self.choices.product_start_s
        bound = {op for op in ops if ops[op].flops / self.rates[self.types[op]] + start == self.seconds(op, 1.0)}
        rule = sharding(self.captured, node)
        return exchanged_by_node(self.captured, node) | {
            "forward_flops": sum(each.flops for each in ops.values()),
            "forward_moved_bytes": sum(each.moved_bytes for each in ops.values()),
            "compute_bound_s": sum(self.seconds(op, 1.0) for op in node.ops if op in bound),
            "memory_bound_s": sum(self.seconds(op, 1.0) for op in node.ops if op not in bound),
            "all_reduced_bytes": 0.0 if rule is None else float(rule.forward_bytes),
        }

    def _most_of_two(self) -> float:
        """The largest working set that two nodes need, whole and computed again; of a single node its own."""
        needs = []
        for node in self.captured.nodes:
            share = self.alone(node)
            needs.append(share.working_bytes + share.inside_bytes * self.choices.recompute)
        return sorted(needs)[-2:][0]

    def _at(self, node: Node, t: int, rule: Sharding | None) -> list[Tmpc]:
        spread = self.spread(node) if t > 1 else ({}, {})
        usable = rule if t > 1 and rule is not None and rule.allows(t) else None
        share = self._share(node, t, usable, False)
        found = self._kept_or_not(VANILLA, share, spread)
        found += self._selective(node, t, usable, found[0], share)
        is_apart = usable is None and t > 1 and takes_tokens_apart(self.captured, node, t)
        if self.choices.sequence_parallel and (usable is not None or is_apart):
            share = self._share(node, t, usable, True)
            own = self._kept_or_not(SEQUENCE, share, ({}, {}))
            found += [*own, *self._selective(node, t, usable, own[0], share)]
        if t > 1 and self.work.microbatch % t == 0:
            for level in self.choices.zero:
                found += self._zero(node, t, level)
        return found

    def alone(self, node: Node) -> Share:
        """A node on one device."""
        return self._share(node, 1, None, False)

    def split(self, node: Node, t: int) -> Share:
        """A node that t devices share by columns and rows, or that each has the whole of."""
        rule = sharding(self.captured, node)
        return self._share(node, t, rule if rule is not None and rule.allows(t) else None, False)

    def seconds(self, op: str, part: float) -> float:
        """Of a part of the work of an op, forward."""
        cost = self.captured.costs[op]
        start = self.choices.product_start_s if cost.flops else 0.0
        return start + max(cost.flops * part / self.rates[self.types[op]], cost.moved_bytes * part / self.memory_rate)

    def _share(self, node: Node, t: int, rule: Sharding | None, sequence: bool) -> Share:
        """A device's part of a node that t devices share by columns and rows; without a rule it has the whole."""
        shared = rule.shared if rule is not None else set()
        split = rule.split if rule is not None else set()
        rest = 1 / t if sequence else 1.0
        sizes = {
            each.name: each.size / (t if rule is not None and each.name in rule.parameters else 1)
            for each in node.parameters
        }
        trained = sum(sizes[each.name] for each in node.parameters if each.trained)
        seconds = {op: self.seconds(op, 1 / t if op in shared else rest) for op in node.ops}
        forward = sum(seconds.values())
        own = set(node.ops)
        saved = inside = 0.0
        for op in node.ops:
            for maker, size in self.captured.costs[op].saved.items():
                part = size * (1 / t if maker in split else rest)
                saved += part
                inside += part if maker in own else 0.0
        moved = (0.0, 0.0) if rule is None else exchanged_bytes(rule, t, sequence)
        steps = (0.0, 0.0) if rule is None else exchanged_bytes(rule.sums(), t, sequence)  # of a byte each, in t parts
        forward_link, backward_link = (
            sent / self.link_rate + t * each * self.choices.latency_s for sent, each in zip(moved, steps, strict=True)
        )
        backward = sum(self.times_back(op) * spent for op, spent in seconds.items())
        backward += 2 * sum(sizes[table] for table in self.tables(node)) / self.memory_rate
        return Share(
            sum(sizes.values()),
            trained,
            self.taken[node.id] * rest,
            saved,
            inside,
            forward,
            backward,
            forward_link + backward_link,
            forward_link,
            self.working[node.id] / (t if rule is not None else 1),
        )

    def times_back(self, op: str) -> int:
        """How many times as long as the forward pass the backward pass of an op takes."""
        costs, node = self.captured.costs, self.graph[op]
        if not costs[op].gradient:
            return 0
        if not costs[op].flops or not self._read(op):
            return 2
        others = [each for each in node.all_input_nodes if not parameters_of(self.captured, each)]
        inputs = any(each.op == "call_function" and costs[each.name].gradient for each in others)
        return int(inputs) + int(self._trains(op))

    def _read(self, op: str) -> list[Parameter]:
        """The parameters that an op reads, as they are or as views."""
        names = (name for each in self.graph[op].all_input_nodes for name in parameters_of(self.captured, each))
        return [self.parameters[name] for name in names]

    def _trains(self, op: str) -> bool:
        """Whether an op is a product with weights that are trained."""
        return bool(self.captured.costs[op].flops) and any(each.trained for each in self._read(op))

    def tables(self, node: Node) -> set[str]:
        """Names of the tables that are looked up and trained: their gradients are dense."""
        found = {
            self.captured.names.get(str(self.graph[op].args[0].target))
            for op in node.ops
            if self.graph[op].target in LOOKUPS
        }
        return {name for name in found if name is not None and self.parameters[name].trained}

    def _kept_or_not(
        self, name: str, share: Share, spread: tuple[dict[NodeId, float], dict[NodeId, float]]
    ) -> list[Tmpc]:
        """A configuration, and the same with recomputation."""
        kept = Tmpc(
            name,
            share.forward_s + share.backward_s + share.link_s,
            share.trained_bytes,
            share.saved_bytes,
            self.states(share.parameter_bytes, share.trained_bytes) + max(0.0, share.working_bytes - self.reserve),
            *spread,
        )
        return self._with_recomputation(kept, share)

    def _with_recomputation(self, kept: Tmpc, share: Share) -> list[Tmpc]:
        if not self.choices.recompute or not share.inside_bytes:
            return [kept]
        again = replace(
            kept,
            id=RECOMPUTE if kept.id == VANILLA else f"{kept.id}, {RECOMPUTE}",
            time=kept.time + share.forward_s + share.again_link_s,
            activation_bytes=share.input_bytes,
            static_bytes=kept.static_bytes
            - max(0.0, share.working_bytes - self.reserve)
            + max(0.0, share.working_bytes + share.inside_bytes - self.reserve),
        )
        return [kept, again]

    def _selective(self, node: Node, t: int, rule: Sharding | None, kept: Tmpc, share: Share) -> Iterator[Tmpc]:
        """A configuration with a part of it computed again, where that leaves less to keep."""
        costs, is_sequence = self.captured.costs, kept.shares_sequence
        rest, rule = 1 / t if is_sequence else 1.0, rule or Sharding()
        for name, part in self.parts.get(node.id, {}).items():
            made, taken = (
                sum(size / t if op in rule.split else size * rest for op, size in sizes)
                for sizes in (part.dropped, part.added)
            )
            sums = (sum(costs[op].output_bytes for op in ops if costs[op].gradient) for ops in (part.rows, part.taken))
            sent = exchanged_bytes(
                replace(Sharding(), forward_bytes=next(sums), backward_bytes=next(sums)), t, is_sequence
            )
            again = sum(self.seconds(op, 1 / t if op in rule.shared else rest) for op in part.ops)
            again += sent[0] / self.link_rate if rule.shared else 0.0
            if made > taken:
                yield replace(
                    kept,
                    id=name if kept.id == VANILLA else f"{kept.id}, {name}",
                    time=kept.time + again,
                    activation_bytes=kept.activation_bytes - made + taken,
                    static_bytes=kept.static_bytes
                    - max(0.0, share.working_bytes - self.reserve)
                    + max(0.0, share.working_bytes + made - self.reserve),
                )

    def states(self, parameter_bytes: float, trained_bytes: float) -> float:
        """Bytes of weights, gradients and the optimiser's states of parameters, some of them trained."""
        weights, gradients, optimiser = self._states()
        return weights * parameter_bytes + (gradients + optimiser) * trained_bytes

    def states_per_byte(self) -> float:
        """Bytes of all states for each byte of parameters."""
        return sum(self._states())

    def _states(self) -> tuple[float, float, float]:
        """Bytes of weights, gradients and the optimiser's states for each byte of parameters."""
        return float(self.choices.weight_versions), GRADIENTS, OPTIMISER[DTYPES[self.work.dtype]]

    def _zero(self, node: Node, t: int, level: int) -> list[Tmpc]:
        """States shared by t devices that share the samples."""
        whole = self._share(node, 1, None, False)
        P, Q, N = whole.parameter_bytes, whole.trained_bytes, self.work.num_microbatches
        weights, gradients, optimiser = self._states()
        states = {
            1: weights * P + gradients * Q + optimiser * Q / t,
            2: weights * P + (gradients + optimiser) * Q / t,
            3: (weights * P + (gradients + optimiser) * Q) / t,
        }[level]
        exchanged = {1: 2 * Q / N, 2: Q + Q / N, 3: 2 * P + Q}[level]
        link = exchanged * (t - 1) / t / self.link_rate
        share = replace(
            whole,
            input_bytes=whole.input_bytes / t,
            saved_bytes=whole.saved_bytes / t,
            inside_bytes=whole.inside_bytes / t,
            forward_s=whole.forward_s / t,
            again_link_s=(t - 1) / t * P / self.link_rate if level == 3 else 0.0,
        )
        time = (whole.forward_s + whole.backward_s) / t + link
        states += max(0.0, share.working_bytes - self.reserve)
        return self._with_recomputation(Tmpc(f"zero{level}", time, Q / t, share.saved_bytes, states), share)

    def spread(self, node: Node) -> tuple[dict[NodeId, float], dict[NodeId, float]]:
        """Whole tensors are spread from and to one device over each edge, as in the catalog's transformers."""
        taken: dict[NodeId, float] = {}
        given: dict[NodeId, float] = {}
        for (source, target), size in edge_bytes(self.captured).items():
            if target == node.id:
                taken[source] = size
            if source == node.id:
                given[target] = size
        return taken, given


def _first_taken(captured: Captured) -> dict[int, float]:
    """Bytes that every node takes from others, a tensor counted where it is taken first."""
    found = dict.fromkeys(range(len(captured.nodes)), 0.0)
    for transfer in captured.transfers:
        found[min(transfer.targets)] += transfer.size
    return found
