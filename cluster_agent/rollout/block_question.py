"""Question to the twin about one block: how the cluster stood, what came, and how fast what trains.

It is made of plain values, and crosses to a process of its own as one line of JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster_agent.active_policy import Candidate
from policy_net.domain import ClusterState, Job
from policy_net.exchange.state_codec import decode_state, encode_state

LEFT_BEHIND_BLOCKS = 2
"""So far the twin goes on behind a block: what a version left behind has mostly been worked off by then."""

AGENTS_PRIORITY = "agents-priority"
"""Word to the twin's process: it has the priority of the agent, which waits for it."""
Figures = tuple[float, float, float]
"""Priced, incumbent, candidate; as `TwinSays` of the verdicts has them."""


@dataclass(frozen=True, slots=True)
class PolicyAtBlock:
    """A policy when a block began: without a `file` it is chosen by its name, without `beliefs` it has none."""

    name: str
    file: bytes | None
    beliefs: Mapping[str, Any] | None

    @classmethod
    def of(cls, candidate: Candidate) -> PolicyAtBlock | None:
        """A policy that acts or is held now; None where only weights are known of it."""
        if candidate.file is None and candidate.spec is not None:
            return None
        beliefs = None if candidate.beliefs is None else candidate.beliefs.checkpoint()
        return cls(candidate.identity.name, candidate.file, beliefs)


@dataclass(frozen=True, slots=True)
class TwinJob:
    """A job that was there in the time that is replayed, as it was last seen; `left` is None if it is still there.

    `work_epochs` is what it took, or is believed to take in all.
    """

    job: Job
    came: float
    left: float | None
    work_epochs: float


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """How the cluster stood at a decision, and of every job there the epochs that it had trained."""

    state: ClusterState
    done_epochs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BlockQuestion:
    """A block.

    Attributes:
        at_begin, at_end: at the first decision from the block's begin on, and from its end on.
        jobs: by `came`; all that were there from the block's begin to `LEFT_BEHIND_BLOCKS` behind its end.
        speeds: samples/s by job type, indexed [ps][workers], as they were measured.
        slotted: whether decisions were made at fixed slots alone.
        debounce_seconds: otherwise the shortest time between two decisions.
        pause_seconds: of a job that starts, or changes its size.
    """

    rollout: int
    number: int
    begin: float
    end: float
    at_begin: ClusterStanding
    at_end: ClusterStanding
    jobs: tuple[TwinJob, ...]
    speeds: Mapping[str, list[list[float]]]
    incumbent: PolicyAtBlock
    candidate: PolicyAtBlock
    slotted: bool
    debounce_seconds: float
    pause_seconds: float = 0.0

    def to_line(self) -> bytes:
        """As it is sent.

        Raises:
            ValueError: a figure is not finite.
        """
        state = self.at_begin.state
        known = ClusterState(state.time_seconds, (), tuple(each.job for each in self.jobs), state.slot_seconds)
        content = {
            "block": [self.rollout, self.number, self.begin, self.end],
            "standings": [[encode_state(each.state), dict(each.done_epochs)] for each in (self.at_begin, self.at_end)],
            "jobs": encode_state(known),
            "times": [[each.came, each.left, each.work_epochs] for each in self.jobs],
            "speeds": dict(self.speeds),
            "policies": [_policy_json(each) for each in (self.incumbent, self.candidate)],
            "pace": [self.slotted, self.debounce_seconds, self.pause_seconds],
        }
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> BlockQuestion:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        content = json.loads(line)
        rollout, number, begin, end = content["block"]
        at_begin, at_end = (ClusterStanding(decode_state(state), done) for state, done in content["standings"])
        jobs = zip(decode_state(content["jobs"]).jobs, content["times"], strict=True)
        incumbent, candidate = (_policy_of(each) for each in content["policies"])
        slotted, debounce_seconds, pause_seconds = content["pace"]
        return cls(
            rollout,
            number,
            begin,
            end,
            at_begin,
            at_end,
            tuple(TwinJob(job, *times) for job, times in jobs),
            content["speeds"],
            incumbent,
            candidate,
            slotted,
            debounce_seconds,
            pause_seconds,
        )


def _policy_json(policy: PolicyAtBlock) -> list[Any]:
    file = None if policy.file is None else base64.b64encode(policy.file).decode()
    return [policy.name, file, policy.beliefs]


def _policy_of(row: list[Any]) -> PolicyAtBlock:
    name, file, beliefs = row
    return PolicyAtBlock(name, None if file is None else base64.b64decode(file), beliefs)
