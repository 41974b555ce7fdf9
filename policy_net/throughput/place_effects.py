"""Beliefs about places: how much faster or slower a type of job trains on a type of GPU, and spread over nodes.

Every report of a job whose places are known compares its speed with what is believed of its size. The logarithm of that
ratio is split in two effects: of the slowest GPU type that the job held, and of the nodes that its workers spanned.
Real clusters are not monotone in the number of nodes (BERT on four T4s is slower on 2+2 than on 1+1+1+1), so two nodes
and more have effects of their own, by how many workers they join.

Each effect is a mean that is shrunk towards a more general one, and that one towards none: of a span with so many
workers towards the type's over all spans, that towards all types' of its kind; of a job type on a GPU type towards all
job types' on it. What is believed changes when the reports have grown by a tenth, so that what follows from it can be
kept. Speeds are learned as if every job had the best place: `without_places` takes the believed effect out of a report.
Source: our own; shrinkage as in Efron & Morris 1973. Deviation: an asynchronous job on several GPU types counts with
the slowest, too, though each of its workers keeps its own pace.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy_net.domain import Job, JobKind, Progress
from policy_net.errors import BadInput
from policy_net.throughput.type_belief import NOISE

Key = tuple[str, ...]

MOST_COUNT = 50
"""Reports that a mean remembers: what it is compared with changes while speeds are learned."""
REFIT_GROWTH, MOST_BETWEEN_FITS = 0.1, 100
FARTHEST_LOG = math.log(20.0)
"""A report counts as at most this far from the speed that is believed: beyond that it is a fault."""
GENERAL_SPAN_SD, TYPE_SPAN_SD, SIZE_SPAN_SD = 0.5, 0.4, 0.3
"""Of the log of the effect of spanning nodes: over all types, of one around that, of one size around its type's."""
GENERAL_GPU_SD, TYPE_GPU_SD = 0.7, 0.3
"""The same of a GPU type: Gavel's K80 are 0.1 to 0.2 of an A100, and types of jobs differ by 1.5 times around that."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A running mean of logarithms, and of how many reports it is, at most `MOST_COUNT`."""

    count: int = 0
    mean: float = 0.0

    def with_report(self, value: float) -> Mean:
        """The mean with one more report."""
        count = min(self.count + 1, MOST_COUNT)
        return Mean(count, self.mean + (value - self.mean) / count)

    def shrunk(self, towards: float, deviation: float) -> float:
        """What is believed where such means lie around `towards` with this standard deviation."""
        trust = self.count / (self.count + (NOISE / deviation) ** 2)
        return towards + trust * (self.mean - towards)


class PlaceBeliefs:
    """A `PlacementEffect` that is learned; 1 everywhere at first. Deterministic, also across a snapshot.

    Attributes:
        version: rises whenever anything that is believed changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.reports = 0
        self._refit_at = 1
        self._means: dict[Key, Mean] = {}
        self._believed: dict[Key, Mean] = {}
        self._kinds: dict[str, JobKind] = {}
        self._gpu_types: set[str] = set()

    def introduce(self, jobs: Iterable[Job]) -> None:
        """Learn of what kind the types of these jobs are."""
        for job in jobs:
            self._kinds.setdefault(job.job_type, job.kind)

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        """See `PlacementEffect`."""
        return math.exp(self._gpu_effect(job_type, workers_by_node) + self._span_effect(job_type, workers_by_node))

    def without_places(self, entry: Progress) -> Progress:
        """The report as it would be from the best place; samples, as its speed, are over the believed effect."""
        if not entry.places or entry.samples <= 0.0 or not self._believed:
            return entry
        return replace(entry, samples=entry.samples / self.relative_speed(entry.job_type, entry.places))

    def observe(self, entry: Progress, believed_speed: float) -> None:
        """Learn from a report.

        Args:
            believed_speed: of the job's size in the best place, in samples/s; nothing is learned where it is 0.
        """
        places = entry.places
        usable = places and 0.0 < entry.seconds < math.inf and 0.0 < entry.samples < math.inf and believed_speed > 0.0
        if not usable:
            return
        self._gpu_types.update(gpu_type for gpu_type, _ in places)
        log_ratio = math.log(entry.samples / entry.seconds / believed_speed)
        log_ratio = min(max(log_ratio, -FARTHEST_LOG), FARTHEST_LOG)
        job_type = entry.job_type
        gpu, span = self._gpu_effect(job_type, places), self._span_effect(job_type, places)
        if len(self._gpu_types) > 1:
            slowest = self._slowest(job_type, places)
            self._add([("gpu", slowest), ("gpu", slowest, job_type)], log_ratio - span)
        if len(places) > 1:
            self._add(self._span_keys(job_type, places), log_ratio - gpu)
        self.reports += 1
        if self.reports >= self._refit_at:
            self._believed = dict(self._means)
            self._refit_at = self.reports + max(1, min(int(REFIT_GROWTH * self.reports), MOST_BETWEEN_FITS))
            self.version += 1

    def _add(self, keys: Iterable[Key], value: float) -> None:
        for key in keys:
            self._means[key] = self._means.get(key, Mean()).with_report(value)

    def _gpu_effect(self, job_type: str, places: Sequence[tuple[str, int]]) -> float:
        return min((self._of_gpu(job_type, gpu_type) for gpu_type, _ in places), default=0.0)

    def _of_gpu(self, job_type: str, gpu_type: str) -> float:
        general = self._believed.get(("gpu", gpu_type), Mean()).shrunk(0.0, GENERAL_GPU_SD)
        return self._believed.get(("gpu", gpu_type, job_type), Mean()).shrunk(general, TYPE_GPU_SD)

    def _slowest(self, job_type: str, places: Sequence[tuple[str, int]]) -> str:
        return min((gpu_type for gpu_type, _ in places), key=lambda name: (self._of_gpu(job_type, name), name))

    def _span_effect(self, job_type: str, places: Sequence[tuple[str, int]]) -> float:
        if len(places) < 2:
            return 0.0
        effect = 0.0
        deviations = (GENERAL_SPAN_SD, TYPE_SPAN_SD, SIZE_SPAN_SD)
        for key, deviation in zip(self._span_keys(job_type, places), deviations, strict=True):
            effect = self._believed.get(key, Mean()).shrunk(effect, deviation)
        return effect

    def _span_keys(self, job_type: str, places: Sequence[tuple[str, int]]) -> tuple[Key, Key, Key]:
        """From the general to the particular: the kind, the type, and the type with so many nodes and workers."""
        kind = self._kinds.get(job_type, JobKind.ALLREDUCE)
        workers = sum(count for _, count in places)
        nodes = "2" if len(places) == 2 else "more"
        size = str(int(math.log2(max(workers, 1))))
        return ("span", kind.value), ("span", kind.value, job_type), ("span", kind.value, job_type, nodes, size)

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values; `restored` is its inverse."""
        return {
            "reports": self.reports,
            "refit_at": self._refit_at,
            "means": _rows(self._means),
            "believed": _rows(self._believed),
            "gpu_types": sorted(self._gpu_types),
            "kinds": {job_type: kind.value for job_type, kind in sorted(self._kinds.items())},
        }

    @classmethod
    def restored(cls, entry: Any) -> PlaceBeliefs:
        """Rebuild from `snapshot`'s value.

        Raises:
            BadInput: it is something else.
        """
        beliefs = cls()
        try:
            beliefs.reports, beliefs._refit_at = int(entry["reports"]), int(entry["refit_at"])
            beliefs._means, beliefs._believed = _means(entry["means"]), _means(entry["believed"])
            beliefs._gpu_types = {str(name) for name in entry["gpu_types"]}
            beliefs._kinds = {str(job_type): JobKind(kind) for job_type, kind in entry["kinds"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"not a snapshot of the effects of places: {error!r}; delete it to start anew") from error
        return beliefs

    def digest(self) -> str:
        """SHA-256 over what a snapshot holds, hex."""
        return hashlib.sha256(repr(self.snapshot()).encode()).hexdigest()


def _rows(means: Mapping[Key, Mean]) -> list[list[Any]]:
    return [[list(key), mean.count, mean.mean] for key, mean in sorted(means.items())]


def _means(rows: Sequence[Any]) -> dict[Key, Mean]:
    return {tuple(str(part) for part in key): _mean(count, mean) for key, count, mean in rows}


def _mean(count: Any, mean: Any) -> Mean:
    if not (0 < int(count) <= MOST_COUNT and math.isfinite(float(mean))):
        raise ValueError(f"{mean} of {count} reports")
    return Mean(int(count), float(mean))
