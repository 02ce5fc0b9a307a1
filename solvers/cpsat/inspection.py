"""A CP-SAT model seen from outside: its size, its linear relaxation, and files."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

from solvers.cpsat.linearisation import file_name, linear
from solvers.inspection import REQUIRED, Group, Range, Relaxation, Sizes, group_of, sentence
from solvers.outcome import Limits, Watch

#: Suffixes of files that a model can be written to: protocol buffers as text and as JSON, and, where its linear part is
#: all of it, what solvers of MILPs read.
FORMATS = (".pb.txt", ".json", ".lp", ".mps")


def sizes(model: cp_model.CpModel) -> Sizes:
    """How large a model is, with a group for each first part of a name."""
    proto = model.proto
    domains = [list(variable.domain) for variable in proto.variables]
    free = [domain for domain in domains if len(set(domain)) > 1]  # others are constants of CP-SAT's own making
    rows = [each.linear for each in proto.constraints if each.has_linear()]
    extremes = [side for row in rows for side in row.domain if abs(side) < 2**62]
    return Sizes(
        binary=sum(domain == [0, 1] for domain in free),
        integer=sum(domain != [0, 1] for domain in free),
        continuous=0,
        constraints=len(proto.constraints),
        nonzeros=sum(len(row.vars) for row in rows),
        matrix=Range.of(coefficient for row in rows for coefficient in row.coeffs),
        objective=Range.of(proto.objective.coeffs),
        sides=Range.of(extremes),
        groups=tuple(_groups(model)),
    )


def _groups(model: cp_model.CpModel) -> Iterator[Group]:
    says: Mapping[str, str] = {"required": REQUIRED, **getattr(model, "sentences", {})}
    named = [variable.name for variable in model.proto.variables if len(set(variable.domain)) > 1]
    for kind, found in (("variable", named), ("constraint", [each.name for each in model.proto.constraints])):
        for name, count in Counter(map(group_of, found)).items():
            yield Group(name, kind, count, *sentence(says.get(name)))


def text(model: cp_model.CpModel, suffix: str) -> str:
    """The model as files of this suffix (`FORMATS`) hold it; ``ValueError`` for any other."""
    if suffix not in FORMATS:
        raise ValueError(" or ".join(FORMATS))
    if suffix in (".lp", ".mps"):
        return _linear_text(model, suffix)
    content = _proto_text(model)
    if suffix == ".json":
        proto = text_format.Parse(content, cp_model_pb2.CpModelProto())
        return str(json_format.MessageToJson(proto, preserving_proto_field_name=True))
    return content


def _linear_text(model: cp_model.CpModel, suffix: str) -> str:
    found = linear(model)
    if found.left_out:
        raise ValueError(f".pb.txt or .json: {', '.join(found.left_out)} of it cannot be said by linear rows")
    return found.to_lp() if suffix == ".lp" else found.to_mps()


def relaxation(model: cp_model.CpModel, limits: Limits, watch: Watch | None = None) -> Relaxation:
    """The relaxation of its linear part (`solvers.cpsat.linearisation`), solved by HiGHS until the watch is stopped."""
    watch = watch or Watch(limits)
    return linear(model, watch).relaxed(watch)


def _proto_text(model: cp_model.CpModel) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.txt")  # CP-SAT writes text where the name ends so
        if not model.export_to_file(str(path)):
            raise OSError(f"CP-SAT could not write {path}")
        return path.read_text()


def file_order(model: cp_model.CpModel, suffix: str) -> list[str]:
    """The variables' names as a file of this suffix has them."""
    if suffix in (".lp", ".mps"):
        return [file_name(place, each) for place, each in enumerate(model.proto.variables)]
    return [each.name for each in model.proto.variables if each.name]


def names(model: cp_model.CpModel) -> Mapping[str, Any]:
    """The variables by their names in files of linear models, and by their own where these are others."""
    held = {place: model.get_int_var_from_proto_index(place) for place in range(len(model.proto.variables))}
    found = {file_name(place, each): held[place] for place, each in enumerate(model.proto.variables)}
    return found | {each.name: held[place] for place, each in enumerate(model.proto.variables) if each.name}
