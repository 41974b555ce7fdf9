"""State of a duty on disk: what must outlive the agent so that a block goes on where it was.

The file is whole or absent, and sealed by a digest. One that is damaged or gone costs the blocks that were not reported
yet: the agent begins behind what the learner holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.state_files import read_json, write_json
from cluster_agent.rollout.alternation import Alternation
from cluster_agent.rollout.block_tally import FinishedBlock
from cluster_agent.rollout.evidence import ShadowSums
from cluster_agent.rollout.presence import Presence
from cluster_agent.rollout.usual_jobs import UsualJobs
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.state_codec import canonical_json

_log = structlog.get_logger()

ROLLOUT = "rollout.json"
FORMAT = "fedl2-rollout-1"
MOST_BLOCKS = 512
"""Finished blocks that wait for the learner: half a year of the longest ones."""


@dataclass
class AssignmentState:
    """What an agent knows of its duty, and what it found out.

    Attributes:
        duty: None where no rollout asks anything.
        assigned_version: beside which the duty's version is held.
        expires: until when the fleet's key has said so, in Unix seconds.
        rollout: whose evidence the rest is; stays when the duty ends, until the learner has it all.
        finished: whole pairs of blocks that the learner does not hold yet, oldest first.
    """

    duty: RolloutAssignment | None = None
    assigned_version: int = 0
    expires: float = 0.0
    rollout: int = 0
    usual_jobs: float = 0.0
    alternation: Alternation = field(default_factory=Alternation)
    finished: list[FinishedBlock] = field(default_factory=list)
    sums: ShadowSums = field(default_factory=ShadowSums)
    usual: UsualJobs = field(default_factory=UsualJobs)
    presence: Presence = field(default_factory=Presence)

    def begin(self, rollout: int) -> None:
        """Forget what was found out in an earlier rollout, and settle what is usual before this one."""
        self.rollout = rollout
        self.usual_jobs = self.usual.mean(otherwise=float(max(len(self.presence.trained), 1)))
        self.alternation, self.finished, self.sums = Alternation(), [], ShadowSums()

    def take(self, blocks: list[FinishedBlock]) -> int:
        """Keep a whole pair for the learner; how many of the oldest had to go for it."""
        self.finished += blocks
        excess = max(0, len(self.finished) - MOST_BLOCKS)
        del self.finished[:excess]
        return excess

    def save(self, folder: Path) -> None:
        """Write it down, whole.

        Raises:
            OSError: the disk refuses.
        """
        content: dict[str, Any] = {
            "format": FORMAT,
            "duty": None if self.duty is None else self.duty.to_json(),
            "assigned_version": self.assigned_version,
            "expires": self.expires,
            "rollout": self.rollout,
            "usual_jobs": self.usual_jobs,
            "alternation": self.alternation.to_json(),
            "finished": [block.to_json() for block in self.finished],
            "sums": self.sums.to_json(),
            "usual": self.usual.to_json(),
            "presence": self.presence.to_json(),
        }
        write_json(folder / ROLLOUT, content | {"digest": _digest(content)})


def load_state(folder: Path) -> AssignmentState:
    """What an earlier life left; as new where that is nothing, or damaged, which is said."""
    path = folder / ROLLOUT
    try:
        saved = read_json(path)
        return AssignmentState() if saved is None else _read(saved)
    except (StateDamaged, KeyError, TypeError, ValueError, IndexError) as error:
        _log.warning("rollout-state-lost", file=str(path), error=str(error), advice="blocks go on behind the learner's")
        return AssignmentState()


def _read(saved: Mapping[str, Any]) -> AssignmentState:
    content = {key: value for key, value in saved.items() if key != "digest"}
    if saved["format"] != FORMAT or saved["digest"] != _digest(content):
        raise ValueError("it is damaged, or of another program")
    duty = saved["duty"]
    return AssignmentState(
        None if duty is None else RolloutAssignment.from_json(duty),
        int(saved["assigned_version"]),
        float(saved["expires"]),
        int(saved["rollout"]),
        float(saved["usual_jobs"]),
        Alternation.from_json(saved["alternation"]),
        [FinishedBlock.from_json(block) for block in saved["finished"]],
        ShadowSums.from_json(saved["sums"]),
        UsualJobs.from_json(saved["usual"]),
        Presence.from_json(saved["presence"]),
    )


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(content)).encode()).hexdigest()
