"""Scorer of the published versions, one after the other, in processes of their own; and replays of sketches likewise.

Nothing depends on a score: whatever happens to such a process, the learner goes on. The card of a version whose process
failed has the reason; it is tried again at the learner's next starts, three times in all.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from global_learner.background_task import BackgroundTask
from global_learner.errors import LearnerError, UnknownPolicyVersion
from global_learner.registry.registry_thread import RegistryThread
from global_learner.scores.replay_process import NoAnswer, process_output
from global_learner.scores.replay_set import NAME, set_digest
from global_learner.section_settings import ScoreSettings
from global_learner.telemetry import LearnerTelemetry

_log = structlog.get_logger()

_ATTEMPTS = 3
_MAX_REASON_CHARACTERS = 300
_COMMAND = (sys.executable, "-m", "global_learner.scores")
Answer = TypeVar("Answer")


class Scorer:
    """Scorer on one event loop: `start`, `add`, `close`. `command`: of the process, without question and limits."""

    def __init__(
        self,
        settings: ScoreSettings,
        state_dir: Path,
        registry: RegistryThread,
        telemetry: LearnerTelemetry,
        wall_clock: Callable[[], float],
        command: Sequence[str] = _COMMAND,
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
        """Score versions without a score on this set, and then what is published; nothing if scores are off."""
        if self._settings.enabled:
            self._task.begin(self._run)

    def add(self, version: int) -> None:
        """Have a version scored."""
        if self._settings.enabled:
            self.idle = False
            self._pending.add(version)
            self._wake.set()

    async def close(self) -> None:
        """Give up the present score; it is computed after the next start."""
        await self._task.close()

    async def _run(self) -> None:
        try:
            await asyncio.to_thread(self._cache.mkdir, 0o700, exist_ok=True)
            for card in await self._registry.call(self._registry.registry.versions):
                if card.kept and _needs_score(card.score):
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
        question = {"file": str(path), "digest": digest, "cache": str(self._cache)}

        def read(answer: Any) -> dict[str, Any]:
            return {**answer, "state": "scored"}

        found = await _parsed_answer(
            self._settings, self._command, question, self._settings.deadline_seconds, read, "score"
        )
        if isinstance(found, NoAnswer):
            identity = {"replay_set": NAME, "replay_set_digest": set_digest()}
            found = {"state": "failed", "reason": found.reason[:_MAX_REASON_CHARACTERS], **identity}
        return {**found, "scored_unix_seconds": self._wall_clock()}


def _of_this_set(score: dict[str, Any] | None) -> bool:
    return score is not None and score.get("replay_set_digest") == set_digest()


def _needs_score(score: dict[str, Any] | None) -> bool:
    """Whether there is no score, one on other replays, or one that failed and may be tried again."""
    if score is None or not _of_this_set(score):
        return True
    return bool(score["state"] == "failed" and score.get("attempts", _ATTEMPTS) < _ATTEMPTS)


JctSeconds = dict[str, float | None]
"""Mean completion time by policy; None of one that lets jobs wait for ever."""


class SketchReplayer:
    """Replays policies on one sketch at a time; `command` is as for `Scorer`."""

    def __init__(self, settings: ScoreSettings, command: Sequence[str] = _COMMAND) -> None:
        self._settings = settings
        self._command = command

    async def __call__(
        self, sketch: Mapping[str, Any], seed: int, policies: Mapping[str, Mapping[str, str] | None]
    ) -> JctSeconds | NoAnswer:
        """Times of policies on a sketch, or the reason why there are none; `policies` as for `scoring.mean_jcts`."""
        question = {"sketch": sketch, "seed": seed, "policies": policies}
        seconds = self._settings.sketch_deadline_seconds

        def read(answer: Any) -> JctSeconds:
            return {name: None if answer[name] is None else float(answer[name]) for name in policies}

        return await _parsed_answer(self._settings, self._command, question, seconds, read, "times")


async def _parsed_answer(
    settings: ScoreSettings,
    command: Sequence[str],
    question: Mapping[str, Any],
    deadline_seconds: float,
    read: Callable[[Any], Answer],
    what: str,
) -> Answer | NoAnswer:
    """Answer of a process to a question, as `read` takes it from JSON, or the reason why there is none."""
    bounds = settings.model_dump(include={"nice", "max_memory_mb"})
    limits = {**bounds, "deadline_seconds": deadline_seconds, "parent": os.getpid()}
    out = await process_output((*command, json.dumps(question), json.dumps(limits)), deadline_seconds)
    if isinstance(out, NoAnswer):
        return out
    try:
        return read(json.loads(out))
    except (ValueError, TypeError, KeyError):
        return NoAnswer(f"its process printed no {what}")
