"""Python files that carry a layout in constants: writing a constant, and reading constants back without running it."""

import ast
from typing import Any


def constant(name: str, value: Any) -> str:
    """``NAME = value``; a list of lists has a line for each."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "\n".join([f"{name} = [", *(f"    {row!r}," for row in value), "]"])
    return f"{name} = {value!r}"


def constants(text: str) -> dict[str, Any]:
    """The constants of a Python file by name, also those that are attributes (``config.parallelism.name``).

    `ValueError` if it is no Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"the text is no Python: {error.msg}, line {error.lineno}") from None
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            try:
                found[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
            except ValueError:  # an expression, which is no constant
                continue
    return found


def read_constant(found: dict[str, Any], name: str, kind: type) -> Any:
    """One of the constants; `ValueError` if it is absent or of another type."""
    if not isinstance(found.get(name), kind):
        raise ValueError(f"{name} is {found.get(name)!r}; expected a constant of type {kind.__name__}")
    return found[name]
