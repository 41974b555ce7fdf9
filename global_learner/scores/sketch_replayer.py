"""Replayer of clusters' sketches: a process for each of them, with the bounds of those that score."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from global_learner.scores.replay_process import NoAnswer, answer_of
from global_learner.section_settings import ScoreSettings

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
