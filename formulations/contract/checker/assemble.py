"""A problem's checker as one file: its text below the theorem, with that of what it imports from here."""

from __future__ import annotations

import ast
from pathlib import Path

_ROOT = Path(__file__).parents[3]
#: The first line of every checker: where a certificate is explained line by line.
_EXPLAINED = '# Explained line by line: docs/what-optimal-means.md, "A certificate on one screen".'


def one_file(problem: str) -> str:
    """The checker of a problem that has certificates; it imports the standard library alone.

    The same text in every installation: imports in order, then each module once, before those that import it.
    """
    checker = _Source(f"formulations.{problem}.certificate.checker")
    modules: dict[str, _Source] = {}

    def take(source: _Source) -> None:
        for name in source.ours:
            if name not in modules:
                take(found := _Source(name))
                modules[name] = found

    take(checker)
    plain, named = set[str](), dict[str, set[str]]()
    for source in (*modules.values(), checker):
        plain |= source.plain
        for name, members in source.named.items():
            named.setdefault(name, set()).update(members)
    imports = [f"import {name}" for name in sorted(plain)]
    imports += [f"from {name} import {', '.join(sorted(named[name]))}" for name in sorted(named)]
    head = [f'{_EXPLAINED}\n"""{checker.says}"""', "from __future__ import annotations", "\n".join(imports)]
    bodies = [f"# {source.says}\n\n{source.body}" for source in modules.values()]
    return "\n\n".join(head) + "\n\n\n" + "\n\n\n".join([*bodies, checker.body]) + "\n"


class _Source:
    """A module's docstring, what it imports of the standard library and of ours, and the text below."""

    def __init__(self, name: str) -> None:
        text = (_ROOT / Path(*name.split("."))).with_suffix(".py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        found = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        self.says = (ast.get_docstring(tree, clean=False) or "").replace("\\", "\\\\")
        self.plain, self.named, self.ours = set[str](), dict[str, set[str]](), list[str]()
        for node in found:
            members = {alias.name for alias in node.names}
            if isinstance(node, ast.Import):
                self.plain |= members
            elif (node.module or "").startswith("formulations."):
                self.ours.append(node.module or "")
            elif node.module != "__future__":
                self.named.setdefault(node.module or "", set()).update(members)
        self.body = "\n".join(text.splitlines()[found[-1].end_lineno :]).strip()
