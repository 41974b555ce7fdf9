"""Gate of rollouts: has versions replayed on the fixed set and on what clusters told of their own work.

Scores of the fixed set are the versions' own, and made once. Sketches are replayed one after the other, each in a
process with a deadline, and what each came to is on disk before the next: a learner that is killed goes on behind it.
A sketch whose replay fails is left out alone. Nothing of this holds up the driver, which asks what is known by now.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from global_learner.background_task import BackgroundTask
from global_learner.errors import BadRequest, LearnerError, UnknownPolicyVersion
from global_learner.registry.registry_thread import RegistryThread
from global_learner.rollout.sketch_store import SketchStore
from global_learner.rollout.state import RolloutState
from global_learner.rollout.verdicts.gate import (
    CONTENDERS,
    FrozenSketch,
    GateReplayed,
    Replays,
    own_work,
    replayed_on,
    replays_of,
    version_name,
)
from global_learner.scores.replay_process import NoAnswer
from global_learner.scores.replay_set import set_digest
from policy_net.errors import BadInput
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.workload_sketch import WorkloadSketch

_log = structlog.get_logger()

Policies = Mapping[str, Mapping[str, str] | None]
ReplaySketch = Callable[[Mapping[str, Any], int, Policies], Awaitable[dict[str, float | None] | NoAnswer]]
"""Replays policies on a sketch, as `SketchReplayer` does."""


class GateReplays:
    """Used on the learner's event loop; `on_done` is called when more is known.

    Attributes:
        score: has a version replayed on the fixed set; None where this learner replays nothing.
        replay: the same on a sketch.
    """

    def __init__(self, registry: RegistryThread, wall_clock: Callable[[], float], on_done: Callable[[], None]) -> None:
        self.score: Callable[[int], None] | None = None
        self.replay: ReplaySketch | None = None
        self.sketches = SketchStore(registry.registry)
        self._registry = registry
        self._wall_clock = wall_clock
        self._on_done = on_done
        self._task = BackgroundTask("sketches")

    async def close(self) -> None:
        """Give up what is under way; it is taken up by whoever asks next."""
        await self._task.close()

    async def on_sketch(self, cluster: str, message: fleet_pb2.WorkloadSketch | None) -> bool:
        """Keep what a registered cluster told of its work, on disk, or forget it; False if that changes nothing.

        Raises:
            BadRequest: it cannot be; what the cluster said before stands.
        """
        try:
            sketch = None if message is None else WorkloadSketch.of(message)
        except BadInput as error:
            raise BadRequest(str(error)) from error
        return await self._registry.call(self.sketches.keep, cluster, sketch, self._wall_clock())

    async def known(self, state: RolloutState) -> GateReplayed | str | None:
        """All replays of a rollout's gate; None while some are missing; a text: why there will be none."""
        if self.score is None:
            return "this learner replays nothing (scores.enabled is off)"
        frozen = await self._registry.call(self.sketches.frozen, state.number)
        own = own_work(frozen, state.candidate, state.incumbents)
        if own is None:
            self._task.begin(functools.partial(self._replay, state, frozen))
        fixed = await self._fixed(state, self.score)
        if isinstance(fixed, str):
            return fixed
        return None if own is None or fixed is None else GateReplayed(fixed, own)

    async def _fixed(self, state: RolloutState, score: Callable[[int], None]) -> Replays | str | None:
        incumbents = state.incumbents
        scores: dict[int, Mapping[str, Any]] = {}
        for version in sorted({state.candidate, *incumbents}):
            try:
                card, _ = await self._registry.call(self._registry.registry.version, version)
            except UnknownPolicyVersion as error:
                return str(error)
            if card.score is None or card.score.get("replay_set_digest") != set_digest():
                score(version)
            else:
                scores[version] = card.score
        return replays_of(scores, state.candidate, incumbents)

    async def _replay(self, state: RolloutState, frozen: list[FrozenSketch]) -> None:
        replay, incumbents = self.replay, state.incumbents
        try:
            for sketch in frozen:
                if replayed_on(sketch, state.candidate, incumbents) is not None:
                    continue
                policies: dict[str, Mapping[str, str] | None] = dict.fromkeys(CONTENDERS)
                for version in sorted({state.candidate, *incumbents}):
                    policies[version_name(version)] = await self._registry.call(self._file_of, version)
                missing = {name: file for name, file in policies.items() if name not in sketch.jct_seconds}
                found: dict[str, float | None] | NoAnswer = NoAnswer("this learner replays no sketches")
                if replay is not None:
                    found = await replay(sketch.sketch, sketch.seed, missing)
                if isinstance(found, NoAnswer):
                    _log.warning("sketch-dropped", rollout=state.number, cluster=sketch.cluster, reason=found.reason)
                    await self._registry.call(self.sketches.note, state.number, sketch.cluster, {}, found.reason)
                else:
                    await self._registry.call(self.sketches.note, state.number, sketch.cluster, found)
            self._on_done()
        except LearnerError as error:
            _log.warning("sketches-wait", rollout=state.number, reason=str(error), advice="tried again")

    def _file_of(self, version: int) -> dict[str, str]:
        registry = self._registry.registry
        card, _ = registry.version(version)
        return {"file": str(registry.policy_path(version)), "digest": card.digest}
