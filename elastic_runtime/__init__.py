"""Elastic training for PyTorch: a script joins a job, and workers and parameter servers come and go while it trains.

The names below are loaded when they are first used: a coordinator, or an agent that asks one, works without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elastic_runtime.errors import BadInput, ElasticError, ModelMismatch, end_with_2_for_bad_input

if TYPE_CHECKING:
    from elastic_runtime.model.optimizers import SGD, Adam, AdamW, CosineRate, PiecewiseRate
    from elastic_runtime.worker.batches import Batch
    from elastic_runtime.worker.job import Job, Progress
    from elastic_runtime.worker.join import join
    from elastic_runtime.worker.prepared.prepare import each, epochs, prepare, rows, state, steps, weight
    from elastic_runtime.worker.prepared.prepare import total as sum  # noqa: F401  (`import *` leaves the builtin)

    is_first: bool
    finished: bool

__all__ = [
    "prepare",
    "state",
    "epochs",
    "each",
    "steps",
    "rows",
    "weight",
    "join",
    "Job",
    "Batch",
    "Progress",
    "SGD",
    "Adam",
    "AdamW",
    "CosineRate",
    "PiecewiseRate",
    "ElasticError",
    "BadInput",
    "ModelMismatch",
]

_PREPARED = {"prepare", "state", "epochs", "each", "steps", "rows", "weight"}
_NOW = {"is_first", "finished"}
"""Words of a prepared script that are true at one time and not at another."""
_PLACES = {
    "join": "worker.join",
    "Job": "worker.job",
    "Batch": "worker.batches",
    "Progress": "worker.job",
    "SGD": "model.optimizers",
    "Adam": "model.optimizers",
    "AdamW": "model.optimizers",
    "CosineRate": "model.optimizers",
    "PiecewiseRate": "model.optimizers",
}


def __getattr__(name: str) -> Any:
    """A public name that is not loaded yet; a script asks for one before it can use anything wrongly."""
    if name in _PREPARED or name in _NOW or name == "sum":
        end_with_2_for_bad_input()
        found = getattr(import_module(f"{__name__}.worker.prepared.prepare"), "total" if name == "sum" else name)
        return found() if name in _NOW else found
    if name in _PLACES:
        end_with_2_for_bad_input()
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
