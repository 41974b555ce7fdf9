"""The last decision of an agent, with what its policy weighed: for people who ask why a job has what it has.

It is read from what every agent keeps: the decision log, the policy's file beside it, and the beliefs of `agent.json`,
which are those that this decision was taken with. So it can be asked of a running agent without disturbing its policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster_agent.acting.active_policy import CandidateFactory, Identity
from cluster_agent.errors import StateDamaged
from cluster_agent.recording.decision_log import CURRENT, closed_files, state_of
from cluster_agent.recording.log_replay import default_finder
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.state_files import read_json
from cluster_agent.settings import PolicySettings
from foundation.text import parse_json
from policy_net.domain import Allocation, ClusterState
from policy_net.errors import BadInput, PolicyFileError
from policy_net.exchange.log_lines import DECISION_START
from policy_net.exchange.state_codec import JsonObject
from policy_net.set_policy.policy import SetPolicy

_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class WeighedStep:
    """A step that a planning policy looked at for a job.

    Attributes:
        speed: believed with it, in samples/s; `times` as fast as before it, 0 if nothing trained before.
        rank: how many steps of any job were looked at before it.
    """

    job_id: str
    target: Allocation
    speed: float
    times: float
    score: float
    taken: bool
    rank: int


def last_decision(state_dir: Path) -> JsonObject | None:
    """The newest line of the log that is whole; None if there is none."""
    files = [state_dir / CURRENT, *reversed(closed_files(state_dir))]
    for path in files:
        found = _last_line(path) if path.exists() else None
        if found is not None:
            return found
    return None


def policy_of(state_dir: Path, line: JsonObject) -> SetPolicy | None:
    """The policy that took a decision, with the beliefs of the agent; None if it is no `set` policy, or not at hand."""
    identity = Identity(line["policy"], int(line["version"]), int(line["head_step"]), line["digest"])
    data = default_finder(state_dir, []).find(identity.digest)
    if data is None:
        return None
    try:
        policy = CandidateFactory(PolicySettings()).from_bytes(data, identity).policy
        if not isinstance(policy, SetPolicy) or policy.beliefs is None:
            return None
        saved = read_json(state_dir / MEMORY)
        if saved is not None and saved.get("acting_beliefs"):
            policy.beliefs.restore(saved["acting_beliefs"])
    except (PolicyFileError, BadInput, StateDamaged, KeyError, TypeError, ValueError):
        return None
    return policy


def weighed_steps(policy: SetPolicy, state: ClusterState) -> list[WeighedStep]:
    """Every step that it looks at in this state, in its order."""
    weighed, tables = policy.weighed(state)
    steps = []
    for rank, step in enumerate(weighed):
        table = tables[step.job]
        before, after = table.speed(step.held), table.speed(step.target)
        times = after / before if before > 0 else 0.0
        job_id = state.jobs[step.job].job_id
        steps.append(WeighedStep(job_id, step.target, after, times, step.score, step.taken, rank))
    return steps


def decided_state(line: JsonObject) -> ClusterState:
    """What it was decided about.

    Raises:
        StateDamaged: the line was changed.
    """
    return state_of(line)


def _last_line(path: Path) -> JsonObject | None:
    """Read from the end on: a log may be as long as a disk allows."""
    with path.open("rb") as stream:
        at, tail = stream.seek(0, 2), b""
        while at > 0:
            start = max(0, at - _BLOCK_BYTES)
            stream.seek(start)
            tail, at = stream.read(at - start) + tail, start
            lines = tail.split(b"\n")
            whole = lines[:-1] if at == 0 else lines[1:-1]  # what follows the last line's end is torn
            for line in reversed(whole):
                found = _parsed(line)
                if found is not None:
                    return found
    return None


def _parsed(line: bytes) -> JsonObject | None:
    if not line.startswith(DECISION_START.encode()):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
