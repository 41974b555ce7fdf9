"""The last decision of an agent, with what its policy weighed: for people who ask why a job has what it has.

It is read from what every agent keeps: the decision log, the policy's file beside it, and the beliefs of `agent.json`,
which are those that this decision was taken with. So it can be asked of a running agent without disturbing its policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_agent.active_policy import CandidateFactory, PolicyIdentity
from cluster_agent.errors import BadAgentConfig, JobRefused, StateDamaged
from cluster_agent.recording.log_reading import last_decision, state_of
from cluster_agent.recording.log_replay import default_finder
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.state_files import read_json
from cluster_agent.settings import PolicySettings
from foundation.figures import counted
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, Resources
from policy_net.errors import BadInput, PolicyFileError
from policy_net.exchange.state_codec import JsonObject
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.reasons import reasons_of

_MOST_OTHERS = 8
_SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True)
class WeighedStep:
    """A step that a planning policy weighed for a job, behind `rank` others.

    `speed` is believed with it, in samples/s; `times` as fast as before it, 0 if nothing trained before.
    """

    job_id: str
    target: Allocation
    speed: float
    times: float
    score: float
    taken: bool
    rank: int

    def to_json(self) -> dict[str, Any]:
        """As people are told of it."""
        return {
            "workers": self.target.workers,
            "ps": self.target.ps,
            "samplesPerSecond": self.speed,
            "timesAsFast": self.times or None,
            "score": self.score,
            "taken": self.taken,
            "rank": self.rank,
        }


@dataclass(frozen=True, slots=True)
class WeighedDecision:
    """A decision, what it was about, and what was weighed for it.

    `facts` say who took it, when and why; `policy` is None if it is no `set` policy, or not at hand.
    """

    state: ClusterState
    given: Mapping[str, Allocation]
    facts: Mapping[str, Any]
    steps: Sequence[WeighedStep] = field(default_factory=list)
    policy: SetPolicy | None = None

    def job(self, job_id: str) -> Job | None:
        """A job that it was about; None if it was not."""
        return next((job for job in self.state.jobs if job.job_id == job_id), None)

    def size_of(self, job_id: str) -> Allocation:
        """What it gave a job."""
        return self.given.get(job_id, SUSPENDED)

    def steps_of(self, job_id: str) -> list[WeighedStep]:
        """The steps that were weighed for a job."""
        return [step for step in self.steps if step.job_id == job_id]

    def facts_of(self, job_id: str) -> dict[str, Any]:
        """The decision as a job's owner is told of it."""
        size = self.size_of(job_id)
        reasons = [] if self.policy is None else reasons_of(self.policy, self.state, job_id)
        own = {"workers": size.workers, "ps": size.ps, "reasons": [*reasons, *self.facts["reasons"]]}
        return {**self.facts, **own}

    def capacity_for(self, job: Job) -> str:
        """What a job waits for that was given nothing."""
        taken = Resources(0)
        for other in self.state.jobs:
            size = self.size_of(other.job_id)
            taken += other.worker_demand * size.workers + other.ps_demand * size.ps
        least = job.worker_demand * max(job.min_workers, 1) + job.ps_demand * job.min_ps
        total = self.state.total
        free = f"{_cores(total.cpu_milli - taken.cpu_milli)} of {cores(total.cpu_milli)}"
        if total.gpu:
            free += f" and {total.gpu - taken.gpu} of {counted(total.gpu, 'GPU')}"
        needs = cores(least.cpu_milli) + (f" and {counted(least.gpu, 'GPU')}" if least.gpu else "")
        if (taken + least).fits_in(total):
            return f"the policy, which gave it nothing though {free} are free and it needs {needs}"
        return f"room: it needs at least {needs}, and {free} are free"

    def others(self, job_id: str) -> list[dict[str, Any]]:
        """The other jobs that were given something, those first whose first step came before any of this job's."""
        first: dict[str, float] = {}
        for step in self.steps:
            first.setdefault(step.job_id, step.score)
        sizes = {job.job_id: self.size_of(job.job_id) for job in self.state.jobs if job.job_id != job_id}
        with_something: list[dict[str, Any]] = [
            {"name": name, "workers": size.workers, "ps": size.ps, "score": first.get(name)}
            for name, size in sizes.items()
            if size != SUSPENDED
        ]
        return sorted(with_something, key=lambda row: -(row["score"] or 0.0))[:_MOST_OTHERS]

    def answer(self, job_id: str) -> dict[str, Any]:
        """What an explanation of a job has from its decision."""
        return {
            "decision": self.facts_of(job_id),
            "steps": [step.to_json() for step in self.steps_of(job_id)],
            "others": self.others(job_id),
        }


def weighed_decision(state_dir: Path) -> WeighedDecision | None:
    """The newest decision of an agent; None if there is none, or its line was changed."""
    line = last_decision(state_dir)
    state = None if line is None else _readable_state(line)
    if line is None or state is None:
        return None
    facts = {
        "number": line["number"],
        "unixSeconds": line["wall_time_seconds"],
        "trigger": line["trigger"],
        "policy": line["policy"],
        "version": line["version"],
        "guard": line["interventions"],
        "guardDetail": line.get("guard_detail", ""),
        "reasons": line["reasons"],
    }
    policy = policy_of(state_dir, line)
    given = {name: Allocation(*size) for name, size in line["allocation"].items()}
    return WeighedDecision(state, given, facts, [] if policy is None else weighed_steps(policy, state), policy)


def explain_from_log(name: str, state_dir: Path) -> dict[str, Any]:
    """Explanation of a job of the newest decision, by its name in the log; plain JSON values as of a local job.

    Nobody has to run, and nothing but what an agent keeps is read. Jobs of a simulation have no names that people gave
    them; the newest decision says which there are.

    Raises:
        BadConfig: no decision can be read there.
        JobRefused: the newest one was not about this job.
    """
    decision = weighed_decision(state_dir) if state_dir.is_dir() else None
    if decision is None:
        raise BadAgentConfig(
            f"setting state_dir: {state_dir} holds no decision that can be read; let the agent run first"
        )
    job = decision.job(name)
    if job is None:
        names = [job.job_id for job in decision.state.jobs]
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        known = f"it was about {', '.join(names[:_SHOWN_NAMES])}{more}" if names else "there was no job then"
        number = decision.facts["number"]
        raise JobRefused(f"no job {name[:63]!r} in the newest decision, number {number}: {known}")
    size = decision.size_of(name)
    return {
        "name": name,
        "state": "waiting" if size == SUSPENDED else "running",
        "workers": size.workers,
        "ps": size.ps,
        "held": False,
        "ended": False,
        **decision.answer(name),
        "waitsFor": decision.capacity_for(job) if size == SUSPENDED else "",
    }


def jobs_decided_about(state_dir: Path) -> frozenset[tuple[str, float]]:
    """The jobs of the newest logged decision: their ids, and when they were submitted."""
    line = last_decision(state_dir)
    state = None if line is None else _readable_state(line)
    return frozenset() if state is None else frozenset((job.job_id, job.submit_time_seconds) for job in state.jobs)


def policy_from_file(state_dir: Path, line: JsonObject) -> SchedulerPolicy | None:
    """The policy that took a decision, from its file; None without one.

    Raises:
        PolicyFileError: the file cannot be used.
    """
    identity = PolicyIdentity(line["policy"], int(line["version"]), int(line["head_step"]), line["digest"])
    data = default_finder(state_dir, []).find(identity.digest)
    return None if data is None else CandidateFactory(PolicySettings()).from_bytes(data, identity).policy


def policy_of(state_dir: Path, line: JsonObject) -> SetPolicy | None:
    """The policy that took a decision, with the beliefs of the agent; None if it is no `set` policy, or not at hand."""
    try:
        policy = policy_from_file(state_dir, line)
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
        before, after = table.speed(step.granted), table.speed(step.size)
        times = after / before if before > 0 else 0.0
        job_id = state.jobs[step.job].job_id
        steps.append(WeighedStep(job_id, step.size, after, times, step.score, step.taken, rank))
    return steps


def _readable_state(line: JsonObject) -> ClusterState | None:
    """What a decision was about; None where its line was changed."""
    try:
        return state_of(line)
    except StateDamaged:
        return None


def _cores(milli: int) -> str:
    return f"{milli / 1000:g}"


def cores(milli: int) -> str:
    """So many cores: 1 core, 0.5 cores."""
    return f"{_cores(milli)} core" + "s" * (milli != 1000)
