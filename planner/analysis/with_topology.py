"""``solve MODEL --topology T``: an operator graph and a network of devices become one instance of both phases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instances.catalog.mappings import MAX_DEVICES
from instances.generators import topologies
from instances.problems.device_mapping import DeviceMapping
from instances.problems.operator_partitioning import OperatorInstance
from instances.problems.pipeline_placement import PlacementInstance, place_on
from planner.files.load import load
from planner.process.errors import UsageError

_OWN = ("objective", "ring")
#: Of a placement, and of its operators: by them a step is counted, and the memory of the schedule.
_BOTH = ("microbatches",)


def load_placed(
    model: str, topology: str, *, inputs: str | None = None, overrides: Mapping[str, Any]
) -> PlacementInstance:
    """The instance of a model on a network.

    ``model``: an operator graph: a file or a name from the catalog, with the overrides of its family.
    ``topology``: a kind of network (``planner make topology --help``), for as many devices as stages times replicas; a
    matrix of bandwidths in CSV; or a file of a device mapping, whose network is taken.
    ``overrides``: of the operator graph, ``objective`` and ``ring`` of the placement, and ``microbatches`` of both: if
    left out, a replica's part of the step that the graph declares, or those of its training.
    `UsageError` if the model is of another family, or there is no such network.
    """
    own = {name: overrides[name] for name in (*_OWN, *_BOTH) if name in overrides}
    operators = load(model, inputs=inputs, **{name: value for name, value in overrides.items() if name not in _OWN})
    if not isinstance(operators, OperatorInstance):
        raise UsageError.at("--topology", topology, "a model that is an operator graph (operator_partitioning)")
    if operators.num_stages is None or operators.num_devices is not None:
        raise UsageError.at("--topology", topology, "--stages and --replicas with it, not --devices")
    devices = operators.num_stages * operators.replicas
    # Of the step that the graph declares, as its memory is.
    if operators.step_microbatches:
        own.setdefault("microbatches", -(-operators.step_microbatches // operators.replicas))
    elif operators.training:
        own.setdefault("microbatches", operators.training.microbatches)
    instance = place_on(operators, network(topology, devices, inputs), model)
    options = {**operators.options, "topology": topology}
    from formulations.pipeline_placement import FAMILY
    from planner.files import settings

    network_only = PlacementInstance(operators, instance.bandwidth_bytes_per_s, options=options)
    placement: PlacementInstance = FAMILY.read(network_only, model, settings.parse(FAMILY.overrides, own))
    return placement


def network(topology: str, devices: int, inputs: str | None = None) -> tuple[tuple[float, ...], ...]:
    """The bandwidths between so many devices of a kind of network, or those that a file holds."""
    if devices > MAX_DEVICES:
        raise UsageError.at("stages x replicas", devices, f"at most {MAX_DEVICES}")
    if topology in topologies.KINDS:
        try:
            return topologies.topology(topology, devices)
        except ValueError as error:
            raise UsageError.at("--topology", topology, f"a network for {devices} devices ({error})") from None
    if not os.path.exists(topology):
        raise UsageError.unknown("--topology", topology, topologies.KINDS)
    if Path(topology).suffix.lower() == ".csv":
        from instances.readers import bandwidth_csv

        return bandwidth_csv.read(topology)
    found = load(topology, inputs=inputs)
    if not isinstance(found, DeviceMapping):
        raise UsageError.at("--topology", topology, "a file of a device mapping, or a matrix FILE.csv")
    return found.bandwidth_bytes_per_s
