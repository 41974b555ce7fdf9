"""State of an assignment on disk: what must outlive the agent so that a block goes on where it was.

The file is whole or absent, and sealed by a digest. One that is damaged or gone costs the blocks that were not reported
yet: the agent begins behind what the learner holds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.errors import StateDamaged
from cluster_agent.guard import ChallengerDecision, GuardedDecision
from cluster_agent.recording.state_files import read_json, write_json
from cluster_agent.rollout.alternation import Alternation, DecisionInterval, FinishedBlock, Latencies, Presence
from policy_net.domain import ClusterState, Decision, SpeedModel, speed_at
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.state_codec import digest_of_json

_log = structlog.get_logger()

ROLLOUT = "rollout.json"
FORMAT = "fedl2-rollout-1"
MOST_BLOCKS = 512
"""Finished blocks that wait for the learner: half a year of the longest ones."""


PART_SECONDS = 3600.0
PARTS = 7 * 24
"""A week: nights, working days and the weekend."""
LEAST_JOBS = 0.1
"""Of a cluster that was empty all week; a share of nothing is nothing."""


class UsualJobs:
    """Usual number of jobs in a cluster, of which a rollout's losses are a share: the mean over the last days.

    It is kept with and without a rollout, in parts of an hour of the cluster's own time.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[float, float]] = deque(maxlen=PARTS)
        self._open = (0.0, 0.0)

    @property
    def closed(self) -> int:
        """How many parts are full; changes when there is something to be kept."""
        return len(self._parts)

    def add(self, interval: DecisionInterval) -> bool:
        """Take in an interval; whether a part of the window is full now, and worth keeping."""
        seconds, job_seconds = self._open
        self._open = (
            seconds + interval.end - interval.begin,
            job_seconds + interval.job_seconds(interval.begin, interval.end),
        )
        if self._open[0] < PART_SECONDS:
            return False
        self._parts.append(self._open)
        self._open = (0.0, 0.0)
        return True

    def mean(self, otherwise: float) -> float:
        """Jobs in the system on average, at least `LEAST_JOBS`; `otherwise` where nothing was seen yet."""
        parts = [*self._parts, self._open]
        seconds = sum(part[0] for part in parts)
        return max(sum(part[1] for part in parts) / seconds if seconds > 0.0 else otherwise, LEAST_JOBS)

    def to_json(self) -> list[list[float]]:
        """For a file."""
        return [list(part) for part in (*self._parts, self._open)]

    @classmethod
    def from_json(cls, content: Any) -> UsualJobs:
        """The inverse.

        Raises:
            TypeError, ValueError, IndexError: it is something else.
        """
        made = cls()
        parts = [(float(seconds), float(job_seconds)) for seconds, job_seconds in content]
        made._parts.extend(parts[:-1])
        made._open = parts[-1]
        return made


_LEAST_PROGRESS = 0.01
"""Jobs' worth; where one of the two lets nothing train, the logarithm of their ratio stays finite."""


@dataclass
class ShadowSums:
    """What fleet.proto's `ShadowSums` says, while it adds up."""

    decisions: int = 0
    agreed: int = 0
    failed: int = 0
    incumbent_interventions: int = 0
    candidate_interventions: int = 0
    gain: float = 0.0
    compared: int = 0
    incumbent_latencies: Latencies = field(default_factory=Latencies)
    candidate_latencies: Latencies = field(default_factory=Latencies)

    def add(
        self, state: ClusterState, guarded: GuardedDecision, challenged: ChallengerDecision, speeds: SpeedModel
    ) -> None:
        """Compare two decisions about a state, of which the first was carried out."""
        self.decisions += 1
        self.incumbent_interventions += bool(guarded.interventions)
        self.candidate_interventions += bool(challenged.interventions)
        self.incumbent_latencies.add(guarded.decide_seconds)
        if not challenged.answered:
            self.failed += 1
            return
        self.candidate_latencies.add(challenged.seconds)
        decision = challenged.decision
        if decision is None:
            return
        self.agreed += all(decision.of(job.job_id) == guarded.decision.of(job.job_id) for job in state.jobs)
        candidate, incumbent = (_believed_progress(each, state, speeds) for each in (decision, guarded.decision))
        gain = math.log(max(candidate, _LEAST_PROGRESS) / max(incumbent, _LEAST_PROGRESS))
        if math.isfinite(gain):
            self.gain += gain
            self.compared += 1

    def message(self) -> fleet_pb2.ShadowSums:
        """For the wire."""
        return fleet_pb2.ShadowSums(
            decisions=self.decisions,
            agreed=self.agreed,
            failed=self.failed,
            incumbent_interventions=self.incumbent_interventions,
            candidate_interventions=self.candidate_interventions,
            incumbent_latency_p99_seconds=self.incumbent_latencies.p99_seconds,
            candidate_latency_p99_seconds=self.candidate_latencies.p99_seconds,
            believed_gain=self.gain / self.compared if self.compared else 0.0,
        )

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return counts | {
            "gain": self.gain,
            "incumbent_latencies": self.incumbent_latencies.to_json(),
            "candidate_latencies": self.candidate_latencies.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ShadowSums:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        made = cls()
        for name in _COUNTS:
            setattr(made, name, int(content[name]))
        made.gain = float(content["gain"])
        made.incumbent_latencies = Latencies.from_json(content["incumbent_latencies"])
        made.candidate_latencies = Latencies.from_json(content["candidate_latencies"])
        return made


_COUNTS = ("decisions", "agreed", "failed", "incumbent_interventions", "candidate_interventions", "compared")


def _believed_progress(decision: Decision, state: ClusterState, speeds: SpeedModel) -> float:
    """Jobs' worth of progress: of every job its believed speed, as a share of the best that is believed of its type."""
    total = 0.0
    for job in state.jobs:
        grid = speeds.grid(job.job_type)
        granted = decision.of(job.job_id)
        best = float(grid[: job.max_ps + 1, : job.max_workers + 1].max())
        if best > 0.0 and job.can_train(granted):
            total += speed_at(grid, granted.ps, granted.workers) / best
    return total


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the learner is to hear; `shadow` is None where nothing is new."""

    rollout: int
    blocks: tuple[FinishedBlock, ...]
    shadow: ShadowSums | None


@dataclass
class AssignmentState:
    """What an agent knows of its assignment, and what it found out.

    Attributes:
        rollout_assignment: None where no rollout asks anything.
        assigned_version: beside which the assignment's version is held.
        expires: until when the fleet's key has said so, in Unix seconds.
        rollout: whose evidence the rest is; stays when the assignment ends, until the learner has it all.
        finished: whole pairs of blocks that the learner does not hold yet, oldest first.
    """

    rollout_assignment: RolloutAssignment | None = None
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
            "duty": None if self.rollout_assignment is None else self.rollout_assignment.to_json(),
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
        write_json(folder / ROLLOUT, content | {"digest": digest_of_json(content)})


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
    if saved["format"] != FORMAT or saved["digest"] != digest_of_json(content):
        raise ValueError("it is damaged, or of another program")
    rollout_assignment = saved["duty"]
    return AssignmentState(
        None if rollout_assignment is None else RolloutAssignment.from_json(rollout_assignment),
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
