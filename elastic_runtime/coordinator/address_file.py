"""Where a coordinator answers, told to whoever started it by a file that is there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from elastic_runtime.errors import BadInput


def write_address(path: Path, address: str, incarnation: int) -> None:
    """Write address, process id and incarnation (JSON).

    Raises:
        BadInput: the file cannot be written.
    """
    content = {"address": address, "pid": os.getpid(), "incarnation": f"{incarnation:016x}"}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(content) + "\n")
        aside.replace(path)
    except OSError as error:
        raise BadInput(f"the coordinator's address cannot be written to {path}: {error}") from error
