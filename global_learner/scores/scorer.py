"""Scorer of the published versions, one after the other, by processes of their own, beside the updates.

Nothing depends on a score: whatever happens to such a process, the learner goes on. A version whose process fails says
why on its card, and is tried again at the learner's next starts, three times in all.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from global_learner.background_task import BackgroundTask
from global_learner.errors import LearnerError, UnknownPolicyVersion
from global_learner.registry.registry_thread import RegistryThread
from global_learner.scores.replay_process import NoAnswer, answer_of
from global_learner.scores.replay_set import NAME, set_digest
from global_learner.section_settings import ScoreSettings
from global_learner.telemetry import LearnerTelemetry

_log = structlog.get_logger()

_ATTEMPTS = 3
_MAX_REASON_CHARACTERS = 300
_WORKER = ("-m", "global_learner.scores")


class Scorer:
    """Create, `start`, use and `close` it on one event loop.

    Args:
        command: the interpreter and the module that scores; tests put others in its place.
    """

    def __init__(
        self,
        settings: ScoreSettings,
        state_dir: Path,
        registry: RegistryThread,
        telemetry: LearnerTelemetry,
        wall_clock: Callable[[], float],
        command: Sequence[str] = (sys.executable, *_WORKER),
    ) -> None:
        self._settings = settings
        self._cache = state_dir / "scores"
        self._registry = registry
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        self._command = command
        self._pending: set[int] = set()
        self._wake = asyncio.Event()
        self._task = BackgroundTask("scores")
        self.idle = False
        """Whether it has looked, and found nothing (more) to do."""
        telemetry.scores_waiting.set_function(lambda: len(self._pending))

    def start(self) -> None:
        """Score what has no score on this set yet, and then what is published; nothing if scores are off."""
        if self._settings.enabled:
            self._task.begin(self._run)

    def add(self, version: int) -> None:
        """Have a version scored."""
        if self._settings.enabled:
            self.idle = False
            self._pending.add(version)
            self._wake.set()

    async def close(self) -> None:
        """Give up what is under way; it is taken up at the next start."""
        await self._task.close()

    async def _run(self) -> None:
        try:
            await asyncio.to_thread(self._cache.mkdir, 0o700, exist_ok=True)
            for card in await self._registry.call(self._registry.registry.versions):
                if card.kept and _wants_score(card.score):
                    self.add(card.version)
        except (OSError, LearnerError) as error:
            _log.error("scoring-stopped", reason=str(error))
            return
        while True:
            while self._pending:
                version = max(self._pending)  # the newest is what somebody waits for
                await self._score(version)
                self._pending.discard(version)
            self.idle = True
            self._wake.clear()
            await self._wake.wait()

    async def _score(self, version: int) -> None:
        registry = self._registry.registry
        try:
            card, _ = await self._registry.call(registry.version, version)
            path = await self._registry.call(registry.policy_path, version)
            found = await self._ask(path, card.digest)
            if found["state"] == "failed":
                attempts = (card.score or {}).get("attempts", 0) if _of_this_set(card.score) else 0
                found["attempts"] = attempts + 1
            await self._registry.call(registry.set_score, version, found)
        except UnknownPolicyVersion:
            return  # retention was quicker
        except LearnerError as error:
            found = {"state": "failed", "reason": str(error)}
        self._telemetry.scores.labels(found["state"]).inc()
        _log.info(
            "version-scored", version=version, state=found["state"], over=found.get("over"), reason=found.get("reason")
        )

    async def _ask(self, path: Path, digest: str) -> dict[str, Any]:
        """A process's answer, or why there is none."""
        bounds = self._settings.model_dump(include={"nice", "deadline_seconds", "max_memory_mb"})
        limits = {**bounds, "parent": os.getpid()}
        arguments = (*self._command, str(path), digest, str(self._cache), json.dumps(limits))
        out = await answer_of(arguments, self._settings.deadline_seconds, "scores.deadline_seconds")
        if isinstance(out, NoAnswer):
            return self._failed(out.reason)
        try:
            answer: dict[str, Any] = {**json.loads(out), "state": "scored"}
        except (ValueError, TypeError):
            return self._failed("its process printed no score")
        return {**answer, "scored_unix_seconds": self._wall_clock()}

    def _failed(self, reason: str) -> dict[str, Any]:
        return {
            "state": "failed",
            "reason": reason[:_MAX_REASON_CHARACTERS],
            "replay_set": NAME,
            "replay_set_digest": set_digest(),
            "scored_unix_seconds": self._wall_clock(),
        }


def _of_this_set(score: dict[str, Any] | None) -> bool:
    return score is not None and score.get("replay_set_digest") == set_digest()


def _wants_score(score: dict[str, Any] | None) -> bool:
    """None yet, one on other replays, or one that failed and may be tried again."""
    if score is None or not _of_this_set(score):
        return True
    return bool(score["state"] == "failed" and score.get("attempts", _ATTEMPTS) < _ATTEMPTS)


JctSeconds = dict[str, float | None]
"""Mean completion time by policy; None of one that lets jobs wait for ever."""


class SketchReplayer:
    """Replays policies on one sketch at a time.

    Args:
        command: the interpreter and the module that replays; tests put others in its place.
    """

    def __init__(
        self,
        settings: ScoreSettings,
        command: Sequence[str] = (sys.executable, "-m", "global_learner.scores.sketch_process"),
    ) -> None:
        self._settings = settings
        self._command = command

    async def __call__(
        self, sketch: Mapping[str, Any], seed: int, policies: Mapping[str, Mapping[str, str] | None]
    ) -> JctSeconds | NoAnswer:
        """What policies make of a sketch, or why there is no answer.

        Args:
            policies: for each name a heuristic's (None), or `file` and `digest` of a version.
        """
        question = {"sketch": sketch, "seed": seed, "policies": policies}
        seconds = self._settings.sketch_deadline_seconds
        bounds = self._settings.model_dump(include={"nice", "max_memory_mb"})
        limits = {**bounds, "deadline_seconds": seconds, "parent": os.getpid()}
        command = (*self._command, json.dumps(question), json.dumps(limits))
        out = await answer_of(command, seconds, "scores.sketch_deadline_seconds")
        if isinstance(out, NoAnswer):
            return out
        try:
            answer = json.loads(out)
            return {name: None if answer[name] is None else float(answer[name]) for name in policies}
        except (ValueError, TypeError, KeyError):
            return NoAnswer("its process printed no times")
