"""Records of what passes between a region and the learner above; each is on disk before anything follows from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from global_learner.aggregation.gathered import Parcel
from global_learner.aggregation.region import RegionAggregator
from global_learner.learner import Learner
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.learner_answers import LearnerHead
from policy_net.exchange.wire import GradientUpdate


def update_of(parcel: Parcel, region: str, spec_digest: str, *, only_replays: bool) -> GradientUpdate:
    """A push to the learner above.

    Args:
        region: its name there.
        only_replays: nothing else than updates from replays is gathered here.
    """
    return GradientUpdate(
        region,
        parcel.incarnation,
        parcel.sequence,
        parcel.base_step,
        spec_digest,
        parcel.gradient,
        parcel.samples,
        parcel.effective_samples,
        {"updates": float(parcel.updates)},
        only_replays,
    )


class RegionExchange:
    """Writes the records of one region.

    Args:
        clock: Unix seconds.
    """

    def __init__(
        self, learner: Learner[fleet_pb2.ClusterStatus], region: RegionAggregator, clock: Callable[[], float]
    ) -> None:
        self._learner = learner
        self._region = region
        self._clock = clock

    async def pass_up(self, incarnation: int) -> Parcel:
        """Make a push of all that was gathered; from now on it goes up under this name, and under no other.

        Raises:
            LogBroken, NotNow: it cannot be kept.
        """
        region = self._region
        sequence = 1 + (region.sequence if region.incarnation == incarnation else 0)
        await self._learner.record(lambda step: self._record(step, UpdateKind.PASSED_UP, incarnation, sequence))
        if region.pending is None:
            raise RuntimeError("a push was logged, and there is none")
        return region.pending

    async def take_head(self, incarnation: int, head: LearnerHead, *, gives_up: bool) -> int:
        """Go on from the head above; settles the push that is on its way. The step here.

        Args:
            gives_up: all that was computed at earlier heads is of no use.

        Raises:
            LogBroken, NotNow: it cannot be kept.
        """
        weights = np.array(head.weights, dtype=np.float32)
        applied = await self._learner.record(
            lambda step: self._record(
                step, UpdateKind.HEAD_ABOVE, incarnation, self._region.sequence, head.step, weights, int(gives_up)
            )
        )
        return applied.step

    def _record(
        self,
        step: int,
        kind: UpdateKind,
        incarnation: int,
        sequence: int,
        base_step: int = 0,
        weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None = None,
        samples: int = 0,
    ) -> AppliedUpdate:
        content = np.empty(0, np.float32) if weights is None else weights
        update = GradientUpdate("", incarnation, sequence, base_step, self._learner.spec.digest, content, samples, 0.0)
        return AppliedUpdate(step, 0.0, 0, self._clock(), update, kind)
