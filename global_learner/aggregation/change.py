"""The settings under which the log was written, beside it: a replay must not depend on what the file says by now."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from foundation.text import parse_json
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.durable_files import sync_folder
from global_learner.errors import StateUnusable

AGGREGATION_NAME = "aggregation.json"
"""There from the first start on."""


def read_settings(state_dir: Path) -> tuple[AggregationSettings, OptimizerSettings] | None:
    """The settings of the log; None in a state directory that has none yet.

    Raises:
        StateUnusable: they are damaged.
    """
    path = state_dir / AGGREGATION_NAME
    try:
        content = parse_json(path.read_text())
        return (
            AggregationSettings.model_validate(content["aggregation"]),
            OptimizerSettings.model_validate(content["optimizer"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise StateUnusable(f"{path}: damaged; restore the state directory from a copy") from error


def write_settings(state_dir: Path, aggregation: AggregationSettings, optimizer: OptimizerSettings) -> None:
    """Keep the settings for what will be logged from now on, whole or not at all.

    Raises:
        OSError: they could not be written.
    """
    path = state_dir / AGGREGATION_NAME
    content = {"aggregation": aggregation.model_dump(mode="json"), "optimizer": optimizer.model_dump(mode="json")}
    text = json.dumps(content, indent=2) + "\n"
    if path.exists() and path.read_text() == text:
        return
    partial = path.with_suffix(".partial")
    with partial.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    sync_folder(state_dir)
