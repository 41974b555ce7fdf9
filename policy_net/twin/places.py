"""Beliefs of a `set` policy about places on clusters of one GPU type, as the compiled code has them, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, JobKind
from policy_net.throughput.place_effects import PlaceBeliefs
from policy_net.twin.memory import MEAN, CaseMemory

KINDS = tuple(JobKind)
"""In the order in which the effects of whole kinds stand, before those of types."""
SIZES = MAX_ALLREDUCE_WORKERS.bit_length()
"""Numbers of workers that are distinguished: by the power of two below them."""
NODES = ("2", "more")
GPU_TYPE = ""
"""Of all nodes of such a cluster."""
_REPORTS, _REFIT_AT, _FITS = range(3)
Rows = dict[tuple[str, ...], tuple[int, float]]
"""By key, how many reports a mean is of, and the mean."""


def knows_gpu_types(places: PlaceBeliefs) -> bool:
    """Whether anything was learned of GPU types."""
    snapshot = places.snapshot()
    of_gpus = any(key[0] == "gpu" for key, _, _ in (*snapshot["means"], *snapshot["believed"]))
    return of_gpus or not set(snapshot["gpu_types"]) <= {GPU_TYPE}


class BelievedPlaces:
    """What is believed of types whose workers are apart, in arrays that the compiled code updates.

    Args:
        places: of a policy that stands between two decisions; of GPU types nothing.
        kinds: of every type, in the order of their numbers.
    """

    def __init__(self, places: PlaceBeliefs, kinds: Mapping[str, JobKind]) -> None:
        snapshot = places.snapshot()
        self._kinds: dict[str, JobKind] = {name: JobKind(kind) for name, kind in snapshot["kinds"].items()}
        for job_type, kind in kinds.items():
            self._kinds.setdefault(job_type, kind)
        self._gpu_types: list[str] = snapshot["gpu_types"]
        self._seen_before, self._believed_before = _read(snapshot["means"]), _read(snapshot["believed"])
        self._keys = self._all_keys(list(kinds))
        self._seen, self._believed = self._array(self._seen_before), self._array(self._believed_before)
        self._reports = np.array([snapshot["reports"], snapshot["refit_at"], 0], dtype=np.int64)

    def kind_number(self, job_type: str) -> int:
        """The place of the kind that a type was first known to be of."""
        return KINDS.index(self._kinds[job_type])

    def fill(self, memory: CaseMemory) -> None:
        """State what is believed."""
        memory.span_seen, memory.span_believed = int(self._seen.ctypes.data), int(self._believed.ctypes.data)
        memory.place_reports = int(self._reports.ctypes.data)

    def snapshot(self) -> dict[str, Any]:
        """What is believed after the run, as `PlaceBeliefs` has it."""
        seen = self._seen_before | self._rows(self._seen)
        # With every fit all that was seen is believed, of types that this workload has not, too.
        before = self._seen_before if self._reports[_FITS] else self._believed_before
        return {
            "reports": int(self._reports[_REPORTS]),
            "refit_at": int(self._reports[_REFIT_AT]),
            "means": _sorted_rows(seen),
            "believed": _sorted_rows(before | self._rows(self._believed)),
            "gpu_types": [GPU_TYPE] if self._reports[_REPORTS] else self._gpu_types,
            "kinds": {job_type: kind.value for job_type, kind in sorted(self._kinds.items())},
        }

    def _all_keys(self, job_types: list[str]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = [("span", kind.value) for kind in KINDS]
        for job_type in job_types:
            of_type = ("span", self._kinds[job_type].value, job_type)
            found += [of_type, *((*of_type, nodes, str(size)) for nodes in NODES for size in range(SIZES))]
        return found

    def _array(self, rows: Rows) -> NDArray[Any]:
        found = np.zeros(len(self._keys), dtype=MEAN)
        for at, key in enumerate(self._keys):
            count, mean = rows.get(key, (0, 0.0))
            found[at] = (mean, count)
        return found

    def _rows(self, means: NDArray[Any]) -> Rows:
        return {
            self._keys[at]: (int(means[at]["count"]), float(means[at]["mean"]))
            for at in np.flatnonzero(means["count"]).tolist()
        }


def _read(rows: list[list[Any]]) -> Rows:
    return {tuple(key): (count, mean) for key, count, mean in rows}


def _sorted_rows(rows: Rows) -> list[list[Any]]:
    return [[list(key), count, mean] for key, (count, mean) in sorted(rows.items())]
