"""Noise on this cluster's own updates, before anything of them leaves; for those who do not trust the learner.

What was spent is on disk before an update is offered for the first time, so that neither a kill nor a restart gives
more than the budget. An update that is offered again is the same one, with the same noise, and costs nothing more; one
that the learner refuses has cost as much as any, as the learner has seen it.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path

import structlog

from cluster_agent.errors import StateDamaged
from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from policy_net.exchange.wire import GradientUpdate
from policy_net.privacy.mechanism import GaussianNoise
from policy_net.privacy.settings import NoiseSettings, declaration, epsilon

_log = structlog.get_logger()

SPENT_NAME = "privacy.json"
"""In the state directory: how many updates left it with noise, and what they cost."""


class UpdateNoise:
    """Clips, adds noise and counts; for the trainer's thread.

    Raises:
        StateDamaged: what was spent cannot be read back.
    """

    def __init__(self, settings: NoiseSettings, state_dir: Path) -> None:
        self._settings = settings
        self._path = state_dir / SPENT_NAME
        self._noise = GaussianNoise(settings.clip_norm, settings.noise_multiplier)
        self._updates, self._spent = _read(self._path)
        self._reported = False

    @property
    def exhausted(self) -> bool:
        """Whether no further update may leave; said in the log the first time."""
        settings = self._settings
        if settings.allows(self._spent):
            return False
        if not self._reported:
            self._reported = True
            _log.warning(
                "privacy-spent",
                updates=self._updates,
                epsilon=round(epsilon(self._spent, settings.delta), 4),
                target_epsilon=settings.target_epsilon,
                delta=settings.delta,
                meaning="this cluster acts on, and teaches the fleet no more",
            )
        return True

    def on(self, update: GradientUpdate) -> GradientUpdate:
        """The update as it may leave: clipped, noised, without its numbers of samples and statistics. Paid for.

        Raises:
            OSError: it cannot be written down that it was paid for; the update must not leave.
        """
        self._updates, self._spent = self._updates + 1, self._spent + self._settings.cost
        content = {"updates": self._updates, "spent": self._spent}
        write_whole(self._path, json.dumps({**content, "checksum": _checksum(content)}), alone=True, mode=PRIVATE)
        return dataclasses.replace(
            update,
            gradient=self._noise.on(update.gradient),
            samples=1,
            effective_samples=1.0,
            statistics=declaration(self._settings),
        )


def _read(path: Path) -> tuple[int, float]:
    try:
        content = parse_json(path.read_text())
        updates, spent = int(content["updates"]), float(content["spent"])
        sound = content["checksum"] == _checksum({"updates": updates, "spent": spent})
    except FileNotFoundError:
        return 0, 0.0
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StateDamaged(_damaged(path)) from error
    if not sound:
        raise StateDamaged(_damaged(path))
    return updates, spent


def _damaged(path: Path) -> str:
    return f"{path}: damaged, and it says what this cluster's privacy has cost; restore it from a copy"


def _checksum(content: dict[str, float]) -> int:
    return zlib.crc32(json.dumps(content).encode())
