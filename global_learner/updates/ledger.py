"""Ledger of the updates that were applied: whose, which, how late. Part of every snapshot.

Exactly-once rests here: an update is named by (cluster, incarnation, sequence), and a cluster's newest incarnation has
a window of the sequences that were applied. Numbers may be missing (a rejected update uses one up) and may overtake
each other within the window; a number below it is refused, since nobody could say any more whether it was applied.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

import numpy as np

from global_learner.aggregation.settings import PrivacySettings
from global_learner.storage.update_records import NO_CLUSTER, AppliedUpdate, UpdateKind
from policy_net.exchange.spec import Weights
from policy_net.exchange.wire import GradientUpdate
from policy_net.privacy.settings import epsilon

_SAMPLES_MEMORY = 8
"""Updates over which a cluster's mean of samples runs."""
GRADIENTS = frozenset({UpdateKind.STEP, UpdateKind.ARRIVAL, UpdateKind.CLOSING})
"""Kinds of updates that are a cluster's gradient."""
WINDOW = 1024
"""Sequences that may be in flight at once per cluster; an agent has one."""


# Fair staleness. Staleness is counted in steps of the head, and every applied update is one. A cluster that pushes in a
# closed loop would make everybody else's updates too stale, by steps that are none of the fleet's. So of each cluster
# at most `MOST_STEPS_A_CLUSTER` steps since the base count. Where nobody makes more steps than that while another one
# computes a gradient, this is the plain staleness, number for number. Where updates wait for a cohort (`buffered`,
# `robust`), what waits moves nothing, and so makes nobody late: a cohort of the active clusters counts as one step of
# each, and a flood closes none by itself. Deviation from Zhang et al. 2016: theirs counts every step alike.

MOST_STEPS_A_CLUSTER = 8
"""An honest cluster may be eight times as fast as another one before it is held to be too fast; and with four active
clusters, whatever one of them does, the others' steps stay above a third of their length."""


class LatestSteps:
    """The latest steps of every cluster; part of the ledger.

    Args:
        since: steps up to this one are not known, and count as if each were another cluster's; None before the first.
        steps: what is known, in the order of the clusters' latest steps.
    """

    def __init__(self, since: int | None = None, steps: Mapping[str, Iterable[int]] | None = None) -> None:
        self._since = since
        # In this order a count stops at the first cluster that made none.
        self._steps = {name: deque(of_one, maxlen=MOST_STEPS_A_CLUSTER) for name, of_one in (steps or {}).items()}

    def record(self, cluster: str, step: int) -> None:
        """Note a step that a cluster's update made; later than all before."""
        of_one = self._steps.pop(cluster, None) or deque(maxlen=MOST_STEPS_A_CLUSTER)
        of_one.append(step)
        self._steps[cluster] = of_one
        if self._since is None:
            self._since = step - 1

    def fair_staleness(self, base_step: int, head_step: int) -> int:
        """Steps of the head since the base, at most so many of each cluster."""
        plain = head_step - base_step
        if plain <= MOST_STEPS_A_CLUSTER or self._since is None:
            return plain
        known = max(base_step, self._since)
        moved = list(takewhile(lambda of_one: of_one[-1] > known, reversed(self._steps.values())))
        if not any(len(of_one) == MOST_STEPS_A_CLUSTER and of_one[0] > known for of_one in moved):
            return plain  # every step is known by itself
        return known - base_step + sum(step > known for of_one in moved for step in of_one)

    def to_json(self) -> dict[str, Any]:
        """Everything, for a snapshot."""
        return {"since": self._since, "steps": {name: list(of_one) for name, of_one in self._steps.items()}}


# Usual norms of the fleet's gradients: whatever is much longer is clipped before Adam sees it.
#
# One gradient of norm 990 among honest ones of norm 1 makes everybody's steps a hundredth as long for a thousand
# updates, since Adam divides by the root of what it remembers of their squares. So a gradient counts for at most a
# multiple of what is usual. Usual is what nine of ten of a cluster's latest gradients do not exceed, and of those
# figures the median over clusters, each of which weighs the same: neither the one that pushes fastest nor one that
# sends what it likes sets it. Remembered are norms as they were applied, after clipping, so that a lie cannot prepare a
# larger one.
#
# What is remembered follows from the log alone; the log holds gradients as they were applied, so that a replay clips
# nothing and comes to the same bits under any settings.
# Source: Seetharaman et al. 2020, "AutoClip" (clip to a quantile of past norms); Andrew et al. 2021, "Differentially
# Private Learning with Adaptive Clipping". Deviation: a quantile a cluster, and the median of these.

FIRST_LIMIT = 10.0
"""The limit while nothing is known, and at most with one or two clusters, of which none could be outvoted. Sound
gradients have norms of 0.01 to 10."""
REMEMBERED = 32
"""Norms a cluster."""
ENOUGH = 8
"""Norms from which on a cluster has a vote: of fewer, nine of ten say little."""
_SHARE = 0.9
_VOTERS = 64
"""Of more clusters, those that were heard last vote."""
_LEAST_TO_OUTVOTE = 3


def gradient_norm(gradient: Weights) -> float:
    """Euclidean norm; infinite or NaN where the gradient is not finite, or its squares are not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(float(np.dot(gradient, gradient)))


class UsualNorms:
    """The latest norms of every cluster's applied gradients; part of the ledger."""

    def __init__(self, norms: Mapping[str, Iterable[float]] | None = None) -> None:
        """Go on from what `to_json` said; clusters stand in the order in which they were last heard."""
        self._norms = {name: deque(of_one, maxlen=REMEMBERED) for name, of_one in (norms or {}).items()}
        self._votes = {name: _nine_of_ten(of_one) for name, of_one in self._norms.items() if len(of_one) >= ENOUGH}

    def record(self, cluster: str, norm: float) -> None:
        """Remember the norm of an applied gradient."""
        of_one = self._norms.pop(cluster, None) or deque(maxlen=REMEMBERED)
        # Three digits: a snapshot of a thousand clusters stays small, and a sum in another order comes to the same.
        of_one.append(float(f"{norm:.3g}"))
        self._norms[cluster] = of_one
        self._votes.pop(cluster, None)  # the latest stand last
        if len(of_one) >= ENOUGH:
            self._votes[cluster] = _nine_of_ten(of_one)

    def limit(self, factor: float) -> float:
        """The norm beyond which a gradient is clipped now: `factor` times the usual one; infinite for factor 0."""
        if factor == 0.0:
            return math.inf
        votes = list(islice(reversed(self._votes.values()), _VOTERS))
        if len(votes) >= _LEAST_TO_OUTVOTE:
            # Where all have stood still for a while, the next gradient is no lie.
            return factor * statistics.median_low(votes) or FIRST_LIMIT
        return min(FIRST_LIMIT, factor * max(votes, default=math.inf)) or FIRST_LIMIT

    def to_json(self) -> dict[str, list[float]]:
        """Everything, for a snapshot."""
        return {name: list(of_one) for name, of_one in self._norms.items()}


def _nine_of_ten(norms: Iterable[float]) -> float:
    ordered = sorted(norms)
    return ordered[math.ceil(_SHARE * len(ordered)) - 1]


@dataclass(slots=True)
class AppliedSequences:
    """Which sequence numbers of one incarnation were applied: the highest, and a bit for each of the window below."""

    incarnation: int
    highest: int = 0
    bits: int = 0
    count: int = 0

    def holds(self, sequence: int) -> bool:
        """Whether this number was applied; only known above `oldest`."""
        distance = self.highest - sequence
        return 0 <= distance < WINDOW and bool(self.bits >> distance & 1)

    @property
    def oldest(self) -> int:
        """The lowest number that the window still knows about; 1 at first."""
        return max(1, self.highest - WINDOW + 1)

    def add(self, sequence: int) -> None:
        """Note a number as applied; it must be new and not below `oldest`."""
        if sequence > self.highest:
            gap = sequence - self.highest
            self.bits = (self.bits << gap) & ((1 << WINDOW) - 1) if gap < WINDOW else 0
            self.highest = sequence
        self.bits |= 1 << (self.highest - sequence)
        self.count += 1


@dataclass(slots=True)
class ClusterRecord:
    """One cluster's applied updates."""

    sequences: AppliedSequences
    accepted: int = 0
    lessons: int = 0
    """Those of the accepted updates that are in the head: fewer once it was reset."""
    last_staleness: int = 0
    mean_samples: float = 0.0
    """Running mean of its updates' samples; 0 before the first, and in snapshots from before there was one."""
    noised: int = 0
    """How many of the accepted updates were clipped and noised."""
    noise_spent: float = 0.0
    """Sum of 1/z² over these: what they cost in privacy (`policy_net.privacy.settings`)."""


@dataclass(frozen=True, slots=True)
class NoiseSpent:
    """What noised updates have cost up to a head.

    Attributes:
        updates: of the cluster that has given most; `spent` is the sum of 1/z² of the one that has spent most.
        unprotected: updates of all clusters that came without noise.
    """

    updates: int = 0
    spent: float = 0.0
    unprotected: int = 0

    def statement(self, settings: PrivacySettings | None) -> dict[str, Any]:
        """What a version's card says of privacy; nothing where there is none."""
        if settings is None:
            return {}
        return {
            "mode": settings.mode.value,
            "epsilon": round(epsilon(self.spent, settings.delta), 6),
            "delta": settings.delta,
            "clip_norm": settings.clip_norm,
            "noise_multiplier": settings.noise_multiplier,
            "updates_of_one_cluster": self.updates,
            "unprotected_updates": self.unprotected,
            "target_epsilon": settings.target_epsilon or 0.0,
            "sampling": "none",
        }


@dataclass(slots=True)
class SinceVersion:
    """What happened since the last version: the next one's card."""

    contributions: Counter[str] = field(default_factory=Counter)
    staleness: Counter[int] = field(default_factory=Counter)
    parent: int = 0
    """The version that the head was reset to meanwhile; 0 is the newest one."""

    @property
    def staleness_p50(self) -> float:
        """Median staleness in head steps; 0 without updates."""
        return float(statistics.median(self.staleness.elements())) if self.staleness else 0.0

    @property
    def staleness_p90(self) -> float:
        """What nine updates of ten do not exceed, in head steps; 0 without updates."""
        left = -(-9 * self.staleness.total() // 10)
        for steps, count in sorted(self.staleness.items()):
            left -= count
            if left <= 0:
                return float(steps)
        return 0.0

    @property
    def staleness_max(self) -> int:
        """The largest, in head steps; 0 without updates."""
        return max(self.staleness, default=0)


def usual_samples(of_clusters: Iterable[float]) -> float:
    """The median of what clusters usually send, the lower of the two in the middle; 0 where there is none."""
    means = list(of_clusters)
    return statistics.median_low(means) if means else 0.0


class Ledger:
    """The bookkeeping of applied updates; changed by `record` alone, in the order of the log."""

    def __init__(self, active_window_updates: int) -> None:
        self.clusters: dict[str, ClusterRecord] = {}
        self.latest_steps = LatestSteps()
        self.norms = UsualNorms()
        self.since_version = SinceVersion()
        self.reset_step = 0
        self.reset_version = 0
        self.published_step = 0
        """At which a policy that was trained elsewhere became a version last; 0: none did."""
        self._recent: deque[tuple[str, int]] = deque(maxlen=active_window_updates)
        self._recent_clusters: Counter[str] = Counter()

    # `reset_step` is the head's step right after it was last reset, to version `reset_version`; 0 if it never was.

    @property
    def accepted(self) -> int:
        """All updates ever applied; with what is no cluster's (`NO_CLUSTER`), the head's step."""
        return sum(record.accepted for record in self.clusters.values())

    @property
    def staleness_p50(self) -> float:
        """Median staleness of the recent window, in head steps; 0 without updates."""
        return float(statistics.median(staleness for _, staleness in self._recent)) if self._recent else 0.0

    def recent_staleness(self) -> dict[str, Counter[int]]:
        """Updates of the recent window by their staleness in head steps, of every cluster that has some."""
        found: dict[str, Counter[int]] = {}
        for cluster, staleness in self._recent:
            found.setdefault(cluster, Counter())[staleness] += 1
        return found

    def active_clusters_with(self, cluster: str) -> int:
        """How many clusters contributed to the recent window, counting `cluster`, which is about to."""
        return len(self._recent_clusters) + (cluster not in self._recent_clusters)

    def usual_samples(self) -> float:
        """What updates of the active clusters usually have; 0 where nothing is known."""
        means = [self.clusters[name].mean_samples for name in self._recent_clusters]
        return usual_samples(mean for mean in means if mean > 0.0)

    def sequences(self, cluster: str, incarnation: int) -> AppliedSequences:
        """What is known of an incarnation; nothing for one that has not contributed."""
        record = self.clusters.get(cluster)
        if record is None or record.sequences.incarnation != incarnation:
            return AppliedSequences(incarnation)
        return record.sequences

    def holds(self, update: GradientUpdate) -> bool:
        """Whether this very update was applied before."""
        return self.sequences(update.cluster, update.incarnation).holds(update.sequence)

    def record(self, applied: AppliedUpdate) -> None:
        """Note an update; what led to a reset is in no next version."""
        update = applied.update
        if applied.kind is UpdateKind.RESET:
            self.reset_step, self.reset_version = applied.step, update.sequence
            self.since_version = SinceVersion(parent=update.sequence)
            return
        if applied.kind is UpdateKind.PUBLISHED:
            self.published_step = applied.step
        if applied.kind is UpdateKind.HEAD_ABOVE and update.samples:
            self.reset_step, self.reset_version = applied.step, 0
        if applied.kind in NO_CLUSTER:
            return
        self.latest_steps.record(update.cluster, applied.step)
        if applied.kind in GRADIENTS:
            norm = gradient_norm(update.gradient) if applied.applied_norm is None else applied.applied_norm
            self.norms.record(update.cluster, norm)
        sequences = self.sequences(update.cluster, update.incarnation)
        sequences.add(update.sequence)
        record = self.clusters.setdefault(update.cluster, ClusterRecord(sequences))
        record.sequences = sequences
        record.accepted += 1
        record.lessons += 1
        record.last_staleness = staleness = applied.staleness
        mean = record.mean_samples or float(update.samples)
        record.mean_samples = mean + (update.samples - mean) / _SAMPLES_MEMORY
        if applied.noise_multiplier > 0.0:
            record.noised += 1
            record.noise_spent += applied.noise_multiplier**-2
        self.since_version.contributions[update.cluster] += 1
        self.since_version.staleness[staleness] += 1
        self._remember(update.cluster, staleness)

    def unlearn(self, lessons: Mapping[str, int]) -> None:
        """Count the head's lessons as a version says that it was reset to: none where it says nothing.

        More than were ever taken here do not count: a version from elsewhere can say anything.
        """
        for name, record in self.clusters.items():
            record.lessons = min(max(0, lessons.get(name, 0)), record.accepted)

    @property
    def noise_spent(self) -> NoiseSpent:
        """What the fleet's privacy has cost so far."""
        records = self.clusters.values()
        return NoiseSpent(
            max((record.noised for record in records), default=0),
            max((record.noise_spent for record in records), default=0.0),
            sum(record.accepted - record.noised for record in records),
        )

    def spend_lost(self, updates: int) -> None:
        """Count so many updates that are lost, as if every one had been everybody's and cost what is usual."""
        known = [record.noise_spent / record.noised for record in self.clusters.values() if record.noised]
        for record in self.clusters.values():
            record.noise_spent += updates * max(known, default=0.0)

    def take_since_version(self) -> SinceVersion:
        """What happened since the last version; the next one's starts from nothing."""
        taken, self.since_version = self.since_version, SinceVersion()
        return taken

    def _remember(self, cluster: str, staleness: int) -> None:
        if len(self._recent) == self._recent.maxlen:
            oldest, _ = self._recent[0]
            self._recent_clusters[oldest] -= 1
            if not self._recent_clusters[oldest]:
                del self._recent_clusters[oldest]
        self._recent.append((cluster, staleness))
        self._recent_clusters[cluster] += 1

    def to_json(self) -> dict[str, Any]:
        """Everything, for a snapshot."""
        return {
            "clusters": {
                name: {
                    "incarnation": record.sequences.incarnation,
                    "highest_sequence": record.sequences.highest,
                    "window": f"{record.sequences.bits:x}",
                    "accepted_of_incarnation": record.sequences.count,
                    "accepted": record.accepted,
                    "lessons": record.lessons,
                    "last_staleness": record.last_staleness,
                    "mean_samples": record.mean_samples,
                    "noised": record.noised,
                    "noise_spent": record.noise_spent,
                }
                for name, record in self.clusters.items()
            },
            "since_version": {
                "contributions": dict(self.since_version.contributions),
                "staleness": sorted(self.since_version.staleness.items()),
                "parent": self.since_version.parent,
            },
            "reset": [self.reset_step, self.reset_version],
            "published": self.published_step,
            "recent": list(self._recent),
            "latest_steps": self.latest_steps.to_json(),
            "norms": self.norms.to_json(),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any], active_window_updates: int) -> Ledger:
        """The ledger of a snapshot; a window that was made smaller since forgets its oldest entries."""
        ledger = cls(active_window_updates)
        for name, record in content["clusters"].items():
            ledger.clusters[name] = ClusterRecord(
                AppliedSequences(
                    record["incarnation"],
                    record["highest_sequence"],
                    int(record["window"], 16),
                    record["accepted_of_incarnation"],
                ),
                record["accepted"],
                record.get("lessons", record["accepted"]),
                record["last_staleness"],
                record.get("mean_samples", 0.0),
                record.get("noised", 0),
                record.get("noise_spent", 0.0),
            )
        since = content["since_version"]
        ledger.since_version = SinceVersion(
            Counter(since["contributions"]),
            Counter({int(steps): count for steps, count in since["staleness"]}),
            since.get("parent", 0),
        )
        ledger.reset_step, ledger.reset_version = content.get("reset", (0, 0))
        ledger.published_step = content.get("published", 0)
        for name, staleness in content["recent"]:
            ledger._remember(name, staleness)
        ledger.latest_steps = LatestSteps(**content.get("latest_steps", {}))
        ledger.norms = UsualNorms(content.get("norms"))
        return ledger
