"""Decision logs for tests: made by a real loop, with any policy, over drawn states and reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from agent_fakes import Clock

from cluster_agent.active_policy import ActivePolicy, Candidate, DeadlineAsker
from cluster_agent.backends.base import BackendStatus
from cluster_agent.guard import Guard
from cluster_agent.learning.experience import BelievedReward
from cluster_agent.loop import Deciding, DecisionLoop, DecisionRecords, Lessons
from cluster_agent.recording.decision_log import DecisionLog, DecisionRecorder
from cluster_agent.recording.log_reading import log_files
from cluster_agent.recording.log_replay import LogReplayResult, Replayer, default_finder
from cluster_agent.recording.memory import AgentMemory
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.settings import PolicySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import Allocation, ClusterState, Decision, PolicyContext, Progress, RewardKind, Trigger
from policy_net.exchange.state_codec import JsonObject, sealed
from policy_net.policy import build_policy
from policy_net.throughput.parametric import OnlineFit

sys.path.insert(0, str(Path(__file__).parents[1] / "contracts"))
import cluster_states

Interval = tuple[ClusterState, list[Progress]]
"""A state to decide upon, and what jobs did afterwards, whatever was decided."""


class TapeBackend:
    """Shows the states of a tape, one a decision."""

    job_types: Sequence[str] = ()

    def __init__(self, tape: Sequence[Interval]) -> None:
        self._tape = list(tape)
        self.time_seconds = 0.0

    @property
    def finished(self) -> bool:
        return not self._tape

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        return self._tape[0][0], Trigger.SLOT

    def apply(self, decision: Decision) -> list[Progress]:
        del decision
        state, progress = self._tape.pop(0)
        self.time_seconds = state.time_seconds + 600.0
        return progress

    def start(self) -> None:
        pass

    def status(self) -> BackendStatus:
        return BackendStatus(self.time_seconds, 0, 0, 0, 0, 0.0)

    def close(self) -> None:
        pass


def live(
    folder: Path,
    tape: Sequence[Interval],
    first: Candidate,
    *,
    settings: PolicySettings | None = None,
    fallback: str = "drf",
    max_bytes: int = 10**7,
    keep: int = 1000,
    asker: DeadlineAsker | None = None,
    before_each: Callable[[ActivePolicy, int], None] | None = None,
    monitored: bool = False,
) -> None:
    """One life of an agent, over a tape; later lives go on from the same folder."""
    settings = settings or PolicySettings()
    fallback_policy = build_policy(fallback, PolicyContext(seed=settings.seed))
    rewards = OnlineFit()
    asker = asker or DeadlineAsker(60.0, Clock())
    active = ActivePolicy(first, askers=(asker, DeadlineAsker(60.0, Clock())))
    memory = AgentMemory(folder, rewards, active)
    backend = TapeBackend(tape)
    if before_each is not None:
        observe, reported = backend.observe, before_each

        def observe_and_tell() -> tuple[ClusterState, Trigger] | None:
            reported(active, loop.decisions)
            return observe()

        backend.observe = observe_and_tell  # type: ignore[method-assign]
    loop = DecisionLoop(
        backend,
        Deciding(
            active,
            Guard(fallback_policy, 5.0, memory.interventions, memory.monitor if monitored else None),
            RolloutPart(folder, "north", active, OnlineFit(), Clock()),
        ),
        DecisionRecords(
            memory,
            DecisionRecorder(DecisionLog(folder, max_bytes, keep), fallback_policy, settings, lambda: 1.5e9),
        ),
        Lessons(BelievedReward(RewardKind.SLOT_UTILITY, rewards)),
        AgentTelemetry(),
        lambda _: False,
    )
    loop.run()
    loop.close()


def replayed(log: Path, *folders: Path) -> LogReplayResult:
    """Replay a log, or all files of a folder."""
    replayer = Replayer(default_finder(log, list(folders)))
    for path in log_files(log):
        for _ in replayer.replay(path):
            pass
    return replayer.result


def make_tape(decisions: int, jobs: int = 5) -> list[Interval]:
    """A cluster of five jobs whose speeds come out anew every time."""
    generator = np.random.default_rng(decisions)
    tape: list[Interval] = []
    for number in range(decisions):
        state = cluster_states.cluster([cluster_states.job(index) for index in range(jobs)], hours=number / 6)
        wanted = Decision({job.job_id: Allocation(*generator.integers(1, 5, 2).tolist()) for job in state.jobs})
        tape.append((state, cluster_states.progress_of(state, wanted, float(generator.uniform(20, 90)))))
    return tape


def rewritten(path: Path, number: int, change: Callable[[JsonObject], None]) -> None:
    """Change a line and seal it anew, as nobody but a forger would."""
    lines = path.read_bytes().splitlines(keepends=True)
    content = json.loads(lines[number - 1])
    del content["crc32"]
    change(content)
    ordered = {key: content[key] for key in ("state", "checkpoint") if key in content} | content
    lines[number - 1] = sealed(json.dumps(ordered, separators=(",", ":")))
    path.write_bytes(b"".join(lines))
