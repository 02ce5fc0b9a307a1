"""What of a validation must not depend on how it ran."""

import json
from pathlib import Path
from typing import Any

from planner.experiments.validation import records
from planner.experiments.validation.run import Validation


def totals(found: Validation) -> dict[str, Any]:
    """What must not depend on how the validation ran: all but seconds."""
    content = json.loads(json.dumps(found.to_json()))
    for each in content["methods"].values():
        del each["seconds"]
    content["worst"] = {name: [Path(file).name for file in files] for name, files in content["worst"].items()}
    del content["out"]
    return {**content, "rows": [{**row, "seconds": None} for row in records.flat(found.records)]}
