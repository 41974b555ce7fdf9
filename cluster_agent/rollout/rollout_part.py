"""An agent's part in a rollout: which of two policies decides now, and the evidence for the learner.

The loop asks before every decision and tells what came of it; the heartbeat's thread brings the rollout's assignment
and takes the evidence. It counts while the fleet's key has said so (its timestamp has not expired), its version is
here, and the version that it is compared with is assigned here; otherwise the assigned version decides, and the block
that was under way is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import structlog

from cluster_agent.active_policy import ActivePolicy, Candidate, Turn
from cluster_agent.rollout.alternation import DecisionInterval, FinishedBlock
from cluster_agent.rollout.assignment_state import AssignmentState, Evidence, ShadowSums, load_state
from cluster_agent.rollout.block_twins import BlockTwins
from policy_net.domain import ClusterState, Job
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.throughput.parametric import OnlineFit

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AssignmentStatus:
    """How an agent stands to a rollout, for the heartbeat; zeros and no word where there is none."""

    rollout: int = 0
    role: str = ""
    beside_version: int = 0


class RolloutPart:
    """An agent's part in a rollout; safe to use from the loop's and the heartbeat's thread; copies `speeds`."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        active: ActivePolicy,
        speeds: OnlineFit,
        wall_clock: Callable[[], float],
        on_fault: Callable[[], None] = lambda: None,
        twins: BlockTwins | None = None,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._active = active
        self._wall_clock = wall_clock
        self._on_fault = on_fault
        self.twins = twins
        self._lock = threading.Lock()
        self.state: AssignmentState = load_state(folder)
        self._resumed = True
        self._speeds = OnlineFit()
        self._speeds.restore(speeds.snapshot())
        self._in_force = False
        self._to_be_saved = False
        self._sums_sent = -1

    @property
    def rollout_assignment(self) -> RolloutAssignment | None:
        """What is asked, whether or not it can be done now."""
        with self._lock:
            return self.state.rollout_assignment

    @property
    def status(self) -> AssignmentStatus:
        """What a heartbeat says; callable from any thread."""
        with self._lock:
            rollout_assignment, challenger = self.state.rollout_assignment, self._active.challenger
            version = 0 if challenger is None or rollout_assignment is None else challenger.identity.version
            if rollout_assignment is None or not self._in_force:
                return AssignmentStatus(beside_version=version)
            return AssignmentStatus(rollout_assignment.rollout, rollout_assignment.role.value, version)

    @property
    def blocks_waiting(self) -> int:
        """Finished blocks that the learner does not hold yet."""
        with self._lock:
            return len(self.state.finished)

    def follow(self, rollout_assignment: RolloutAssignment | None, assigned_version: int, expires: float) -> None:
        """Do an assignment from the next decision on, until another one is told or the time is over; None ends it."""
        with self._lock:
            state = self.state
            if rollout_assignment != state.rollout_assignment or (
                rollout_assignment is not None and assigned_version != state.assigned_version
            ):
                state.alternation.interrupt()
                _log.info("duty-changed", **_words(rollout_assignment), assigned=assigned_version)
            if rollout_assignment is not None and rollout_assignment.rollout != state.rollout:
                state.begin(rollout_assignment.rollout)
                self._sums_sent = -1
            state.rollout_assignment, state.assigned_version, state.expires = (
                rollout_assignment,
                assigned_version,
                expires,
            )

    def challenger_decides(self, state: ClusterState, assigned: Candidate, challenger: Candidate | None) -> bool:
        """Whether the challenger decides about a state, not the assigned policy; asked once at every decision."""
        with self._lock:
            known = self.state
            interval = known.presence.moved_to(state, self._alone_seconds)
            full = interval is not None and known.usual.add(interval)
            if self.twins is not None:
                self.twins.moved_to(state)
            if self._resumed and interval is not None and interval.end - interval.begin > state.slot_seconds:
                known.alternation.interrupt()  # away for longer than a decision
            self._resumed = False
            before = self._in_force
            decides = self._alternate(state, interval, assigned, challenger)
            if self.twins is not None:
                self.twins.ask(self._speeds)
            if self._in_force is not before:
                _log.info("duty-begun" if self._in_force else "duty-suspended", **_words(known.rollout_assignment))
            self._to_be_saved = full or self._in_force or before or known.rollout_assignment is not None
            return decides

    def decided(self, turn: Turn) -> None:
        """Count a decision in its block and save that before it is carried out; its rollout is noted for the log."""
        guarded = turn.guarded
        with self._lock:
            rollout_assignment, tally = self.state.rollout_assignment, self.state.alternation.tally
            if tally is not None:
                tally.decided(guarded.decide_seconds, changed=bool(guarded.interventions))
            if self._to_be_saved:
                self._save()
            if rollout_assignment is not None and self._in_force:
                turn.rollout = {
                    "rollout": rollout_assignment.rollout,
                    "role": rollout_assignment.role.value,
                    "acted": "candidate" if tally is not None and tally.candidate else "incumbent",
                    "block": None if tally is None else tally.number,
                }

    def ended(self, turn: Turn) -> None:
        """Take in what came of a decision."""
        state, challenged, progress = turn.state, turn.challenged, turn.progress
        with self._lock:
            rollout_assignment = self.state.rollout_assignment
            if (
                challenged is not None
                and rollout_assignment is not None
                and rollout_assignment.role is AssignmentRole.SHADOW
                and self._in_force
            ):
                self.state.sums.add(state, turn.guarded, challenged, self._speeds)
            if progress is not None:
                self.state.presence.carried_out(state.time_seconds, progress)
                if self.twins is not None:
                    self.twins.carried_out(state.time_seconds, progress)
                self._speeds.introduce(state.jobs)
                self._speeds.observe(progress)

    def evidence(self) -> Evidence | None:
        """What the learner does not hold yet; None outside rollouts."""
        with self._lock:
            state = self.state
            if state.rollout == 0 or (state.rollout_assignment is None and not state.finished):
                return None
            new = state.sums.decisions not in (0, self._sums_sent)
            sums = ShadowSums.from_json(state.sums.to_json()) if new else None
            return Evidence(state.rollout, self._ready(), sums)

    def on_taken(self, sent: Evidence, next_block: int, *, taken: bool) -> None:
        """The learner holds all blocks below a number, or wants none of this rollout."""
        with self._lock:
            state = self.state
            if state.rollout != sent.rollout:
                return
            if sent.shadow is not None and taken:
                self._sums_sent = sent.shadow.decisions
            if taken:
                state.alternation.on_taken(next_block)
                done = [block for block in state.finished if block.number < next_block]
            else:
                done = [block for block in state.finished if block in sent.blocks]
            if done:
                state.finished = [block for block in state.finished if block not in done]
                self._save()

    def stop_twin(self) -> None:
        """Stop the twin; blocks that lack its figures are reported without them."""
        if self.twins is not None:
            self.twins.close()

    def close(self) -> None:
        """Save how things stand."""
        with self._lock:
            if self.state.rollout or self.state.usual.closed:
                self._save()

    def _ready(self) -> tuple[FinishedBlock, ...]:
        """Blocks for the learner, in order: none that comes behind one that waits for the twin's figures."""
        state, twins = self.state, self.twins
        if twins is None:
            return tuple(state.finished)
        state.finished = twins.reported(state.rollout, state.finished)
        return tuple(takewhile(lambda block: not twins.waiting(state.rollout, block), state.finished))

    def _alternate(
        self,
        state: ClusterState,
        interval: DecisionInterval | None,
        assigned: Candidate,
        challenger: Candidate | None,
    ) -> bool:
        known, rollout_assignment = self.state, self.state.rollout_assignment
        self._in_force = self._counts(assigned, challenger)
        if (
            rollout_assignment is None
            or not self._in_force
            or rollout_assignment.role is not AssignmentRole.ALTERNATING
        ):
            known.alternation.interrupt()
            return False
        self._report(known.alternation.advance(rollout_assignment, self._cluster, state, interval, known.usual_jobs))
        tally = known.alternation.tally
        if self.twins is not None and tally is not None and challenger is not None:
            self.twins.opened(rollout_assignment.rollout, tally, state, assigned, challenger)
        return known.alternation.candidate_acts(rollout_assignment, self._cluster, state.time_seconds)

    def _counts(self, assigned: Candidate, challenger: Candidate | None) -> bool:
        state = self.state
        return (
            state.rollout_assignment is not None
            and challenger is not None
            and challenger.identity.version == state.rollout_assignment.beside_version
            and assigned.identity.version == state.assigned_version
            and self._wall_clock() < state.expires
        )

    def _report(self, blocks: list[FinishedBlock]) -> None:
        if not blocks:
            return
        if self.twins is not None:
            self.twins.finished(self.state.rollout, blocks)
        lost = self.state.take(blocks)
        if lost:
            _log.warning("blocks-dropped", count=lost, reason="the learner took none for too long")
        _log.info("pair-finished", numbers=[block.number for block in blocks], jobs=[block.jobs for block in blocks])

    def _alone_seconds(self, job: Job) -> float:
        speed = self._speeds.samples_per_second(job.job_type, job.requested.ps, job.requested.workers)
        return job.total_epochs * job.samples_per_epoch / speed if speed > 0.0 else 0.0

    def _save(self) -> None:
        try:
            self.state.save(self._folder)
        except OSError as error:
            self._on_fault()
            _log.error("rollout-state-not-saved", error=str(error))


def _words(rollout_assignment: RolloutAssignment | None) -> dict[str, object]:
    if rollout_assignment is None:
        return {"rollout": 0, "role": "none"}
    return {
        "rollout": rollout_assignment.rollout,
        "role": rollout_assignment.role.value,
        "beside": rollout_assignment.beside_version,
    }
