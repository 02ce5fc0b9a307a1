"""The project's own JSON of stage partitioning: ids as keys, and what TMPCs hold (docs/problems/)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import isclose
from typing import Any

from instances.errors import InstanceError, expect, path
from instances.memory_schemes import SCHEME, SCHEMES, Bookkeeping, missing_rule
from instances.problems.stage_partitioning import DeclaredLayer, DeclaredTmpc, Layer, StageInstance, Tmpc, check
from instances.rules import NodeId
from instances.validation import read_keys

#: The id that a text or an id means.
Named = Callable[[NodeId], NodeId]


#: What a layer has in place of ``tmpcs``.
_TMPC = ("time", "weight_bytes", "activation_bytes", "static_bytes")


def read(content: Any, where: str, scheme: str | None = None) -> StageInstance:
    """The instance that parsed JSON declares.

    ``scheme``, or else the one that its ``options`` name, is the rule of `SCHEMES` for TMPCs without ``static_bytes``;
    the instance's ``options`` record it where there are any.

    `InstanceError`: one line that names the field, its value and the rule; also for weights that no rule says the
    memory of.
    """
    given = read_keys(StageInstance, _with_tmpcs(content, where), where)
    scheme = _scheme(given["layers"], given["options"], scheme, where)
    if scheme is not None:
        given["options"] = {**given["options"], SCHEME: scheme}
    instance = build_instance(given, None if scheme is None else SCHEMES[scheme])
    check(instance, where)
    return instance


def _with_tmpcs(content: Any, where: str) -> Any:
    """The content with the TMPCs of layers that have the numbers of their one TMPC instead, on one device.

    As in a table their ids are their places, and they are a chain, where neither is declared; what flows along it is
    each layer's ``output_bytes``.
    """
    layers = content.get("layers") if isinstance(content, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        return content
    short = [number for number, layer in enumerate(layers) if "tmpcs" not in layer]
    for number in short:
        if "time" not in layers[number]:
            rule = "TMPCs, or the time of the layer's one TMPC"
            raise InstanceError.missing(where, path(("layers", number, "tmpcs")), rule)
    outputs = [layer.get("output_bytes", 0.0) for layer in layers]
    if short and "edges" not in content:
        ids = [layer.get("id", number) for number, layer in enumerate(layers)]
        chain = [
            {"source": source, "target": target, "bytes": size}
            for (source, target), size in zip(pairwise(ids), outputs, strict=False)
        ]
        content = {**content, "edges": chain}
    return {**content, "layers": [_one_tmpc(number, layer) for number, layer in enumerate(layers)]}


def _one_tmpc(number: int, layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The layer, of its one TMPC if it has the numbers of that."""
    if "tmpcs" in layer:
        return layer
    own = {name: value for name, value in layer.items() if name not in (*_TMPC, "output_bytes")}
    only = {"id": "only", **{name: layer[name] for name in _TMPC if name in layer}}
    return {"id": number, **own, "tmpcs": {"1": [only]}}


def build_instance(given: Mapping[str, Any], books: Bookkeeping | None = None) -> StageInstance:
    """The instance whose keys are ``given``: ids as texts become those of the layers.

    ``books``: what TMPCs without ``static_bytes`` hold of their weights (``None``: all have them, or no weights).
    """
    ids: dict[str, NodeId] = {str(layer.id): layer.id for layer in given["layers"]}

    def named(node: NodeId) -> NodeId:
        return ids.get(str(node), node)

    def all_named(nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        return tuple(map(named, nodes))

    ends = {
        "edges": lambda each: replace(each, source=named(each.source), target=named(each.target)),
        "tied": lambda each: replace(each, layers=all_named(each.layers)),
        "shared": lambda each: replace(each, source=named(each.source), targets=all_named(each.targets)),
        "kept": lambda each: replace(each, layers=all_named(each.layers)),
    }
    linked = {name: tuple(map(change, given[name])) for name, change in ends.items() if name in given}
    layers = tuple(_layer(layer, named, books) for layer in given["layers"])
    return StageInstance(**{**given, **linked, "layers": layers})


def _layer(layer: DeclaredLayer, named: Named, books: Bookkeeping | None) -> Layer:
    factor = layer.time_factor
    tmpcs = {t: tuple(_tmpc(x, factor, named, books) for x in found) for t, found in layer.tmpcs.items()}
    weight_times = {t: factor * time for t, time in layer.weight_times.items()}
    return Layer(layer.id, tmpcs, layer.name, layer.module, layer.role, weight_times, layer.work)


def _tmpc(x: DeclaredTmpc, factor: float, named: Named, books: Bookkeeping | None) -> Tmpc:
    held = x.activation_bytes, x.static_bytes or 0.0
    if x.static_bytes is None and books is not None:
        static, in_flight = books.of_weights(x.weight_bytes)
        held = x.activation_bytes + in_flight, static
    volumes = ({named(node): size for node, size in of.items()} for of in (x.sync_forward_bytes, x.sync_backward_bytes))
    return Tmpc(x.id, factor * x.time, x.weight_bytes, *held, *volumes)


def missing_static(layers: tuple[DeclaredLayer, ...]) -> list[tuple[tuple[int | str, ...], float]]:
    """Where TMPCs have no ``static_bytes``, and their ``weight_bytes``."""
    return [
        (("layers", number, "tmpcs", str(t), place, "static_bytes"), x.weight_bytes)
        for number, layer in enumerate(layers)
        for t, found in layer.tmpcs.items()
        for place, x in enumerate(found)
        if x.static_bytes is None
    ]


def _expect_rule_kept(layers: tuple[DeclaredLayer, ...], scheme: Any, where: str) -> None:
    """`InstanceError` for a rule that is named and gives none of the sizes: saved instances name the one they had."""
    held = [(x.static_bytes, x.weight_bytes) for layer in layers for found in layer.tmpcs.values() for x in found]
    if scheme not in SCHEMES or not any(weights for _, weights in held):
        return
    rule = SCHEMES[str(scheme)]
    is_kept = any(weights and isclose(static or 0.0, rule.of_weights(weights)[0]) for static, weights in held)
    expect(
        is_kept, where, path(("options", SCHEME)), scheme, "none: it does not give the static_bytes that are declared"
    )


def _scheme(layers: tuple[DeclaredLayer, ...], options: Mapping[str, Any], given: str | None, where: str) -> str | None:
    """The rule for the TMPCs that leave out what is held; ``None`` if there are none, or none of them has weights."""
    without = missing_static(layers)
    if not without:
        _expect_rule_kept(layers, options.get(SCHEME), where)
        return None
    scheme = given or options.get(SCHEME)
    if scheme is not None:
        expect(scheme in SCHEMES, where, path(("options", SCHEME)), scheme, f"one of {', '.join(SCHEMES)}")
        return str(scheme)
    for field, weights in without:
        if weights:
            raise InstanceError.missing(where, path(field), missing_rule(weights))
    return None
