"""Which processes of a test live."""

from pathlib import Path


def living(mark: str) -> list[int]:
    """The processes whose command line has this mark, where the system shows it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
