"""The JSON of Piper's release: layer graphs with profiled TMPCs.

Source: the release's README and input files (commit d7fc8cf). Sizes are bytes, bandwidth is bytes per time unit; the
unit of time is not in the file.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from instances.errors import InstanceError, path
from instances.problems.published import MILLISECONDS, UNIT_WARNING, fingerprint
from instances.problems.stage_partitioning import StageInstance, check
from instances.readers.stage_json import build_instance, missing_static
from instances.validation import read_keys

#: Our names of fields, and the file's.
NAMES = {
    "time": "timePerSample",
    "weight_bytes": "parameterSize",
    "activation_bytes": "memoryUsageA",
    "static_bytes": "memoryUsageB",
    "sync_forward_bytes": "syncTimeFw",
    "sync_backward_bytes": "syncTimeBw",
    "tmpcs": "TMPCs",
    "source": "sourceId",
    "target": "destId",
    "bytes": "communicationCost",
    "layers": "nodes",
    "num_devices": "maxDevices",
    "memory_bytes": "maxMemoryPerDevice",
    "num_microbatches": "mbsInBatch",
}

_TMPC = ("id", "time", "weight_bytes", "activation_bytes", "static_bytes", "sync_forward_bytes", "sync_backward_bytes")


def read(content: Any, where: str) -> StageInstance:
    """The instance of a file, named after it; the two published files in milliseconds are recognised by content.

    `InstanceError`: one line that names the field, its value and the rule.
    """
    given = read_keys(StageInstance, _in_our_words(content), where, NAMES)
    for place, _ in missing_static(given["layers"]):
        raise InstanceError.missing(where, path(place, NAMES))
    instance = build_instance({**given, "name": Path(where.removesuffix(".gz")).stem or "instance"})
    if fingerprint(instance.layers, instance.edges) in MILLISECONDS:
        instance = replace(instance, time_unit="ms", warnings=(UNIT_WARNING,))
    check(instance, where, NAMES)
    return instance


def _in_our_words(content: dict[str, Any]) -> dict[str, Any]:
    """The same instance in the project's own JSON; files in the wild carry notes of their own, which are no error."""
    found = _pick(content, "num_devices", "memory_bytes", "bandwidth", "layers", "edges")
    for name in ("maxBatchSize", "mbsInBatch"):  # the release's README calls it so, and its files so
        if name in content:
            found["num_microbatches"] = content[name]
    found["layers"] = _each(found.get("layers"), _node)
    found["edges"] = _each(found.get("edges"), lambda edge: _pick(edge, "source", "target", "bytes"))
    return {"problem": "stage_partitioning", **found}


def _node(node: Any) -> Any:
    found = _pick(node, "id", "name", "module", "role", "tmpcs")
    if isinstance(found, dict) and isinstance(tmpcs := found.get("tmpcs"), dict):
        found["tmpcs"] = {t: _each(listed, lambda x: _pick(x, *_TMPC)) for t, listed in tmpcs.items()}
    return found


def _pick(content: Any, *names: str) -> Any:
    """The file's fields that we know under these names; what is no object is left to the reader's complaint."""
    if not isinstance(content, dict):
        return content
    return {name: content[NAMES.get(name, name)] for name in names if NAMES.get(name, name) in content}


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    return [change(value) for value in values] if isinstance(values, list) else values
