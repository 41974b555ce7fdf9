"""Good and bad clusters, crashes and restarts in any order: the head is the sum of what was accepted, once each."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from learner_makers import SPEC, fleet_beliefs, policy, update, vector
from learner_makers import settings as learner_settings

from global_learner.errors import Rejection
from global_learner.learner import Learner, Opened
from global_learner.pushes import PushOutcome, UpdateAnswer
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.storage.receipts import audit, read_receipts
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.quarantine import Quarantine

pytestmark = pytest.mark.heavy

CLUSTERS = ("north", "south", "east")
Cluster = st.sampled_from(CLUSTERS)
SECTIONS: dict[str, Any] = {
    "quarantine": {"seconds": 0},
    "publish": {"every_steps": 3},
    "durability": {"snapshot_every_steps": 4},
    "ingest": {"max_staleness_steps": 5},
}

WRONG: dict[str, tuple[dict[str, Any], Rejection]] = {
    "nan": ({"gradient": np.full(SPEC.parameter_count, np.nan, np.float32)}, Rejection.NOT_FINITE),
    "large": ({"gradient": np.full(SPEC.parameter_count, 1e30, np.float32)}, Rejection.NORM_TOO_LARGE),
    "short": ({"gradient": vector(1)[:-1]}, Rejection.WRONG_SHAPE),
    "spec": ({"spec_digest": "0" * 64}, Rejection.WRONG_SPEC),
    "samples": ({"samples": 0}, Rejection.BAD_SAMPLES),
    "ahead": ({"base_step": 2**40}, Rejection.AHEAD_OF_HEAD),
    "late": ({"base_step": 0}, Rejection.TOO_STALE),
}


class FleetMachine(RuleBasedStateMachine):
    """A learner in a folder, and what it must have applied."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-machine-"))
        self.settings = learner_settings(self.folder, **SECTIONS)
        self.applied: list[tuple[str, int, int]] = []
        self.incarnations = dict.fromkeys(CLUSTERS, 0)
        self.next_sequence = dict.fromkeys(CLUSTERS, 1)
        self.learner: Learner | None = None

    @initialize()
    def begin(self) -> None:
        self.open()
        for cluster in CLUSTERS:
            self.register(cluster)

    def open(self) -> None:
        async def opened() -> None:
            self.state = StateDir(self.settings.state_dir)
            self.registry = RegistryThread(Registry(self.state.path, self.state.commits))
            recovered = recover(self.state, self.registry.registry, self.settings, policy(), time.time())
            telemetry = LearnerTelemetry()
            quarantine = Quarantine(self.settings.quarantine, self.state.path, time.time, commits=self.state.commits)
            self.beliefs = fleet_beliefs(self.settings, self.registry, telemetry)
            opened = Opened(self.state, self.registry, recovered, quarantine, self.beliefs)
            self.learner = Learner(self.settings, opened, telemetry)
            self.learner.start()

        self.loop.run_until_complete(opened())

    @property
    def head(self) -> Any:
        assert self.learner is not None
        return self.learner.head

    @rule(cluster=Cluster)
    def register(self, cluster: str) -> None:
        assert self.learner is not None
        registration = self.loop.run_until_complete(self.learner.register(cluster, "", ()))
        assert registration.incarnation == self.incarnations[cluster] + 1
        self.incarnations[cluster], self.next_sequence[cluster] = registration.incarnation, 1

    def push(self, cluster: str, sequence: int, /, **changes: Any) -> UpdateAnswer:
        assert self.learner is not None
        sound = {"cluster": cluster, "incarnation": self.incarnations[cluster], "base_step": self.head.step}
        sent = update(sequence, **{**sound, **changes})
        return self.loop.run_until_complete(self.learner.pushes.push(sent, want_weights=False))

    @rule(cluster=Cluster, gap=st.integers(0, 3))
    def good(self, cluster: str, gap: int) -> None:
        sequence = self.next_sequence[cluster] + gap
        step = self.head.step
        answer = self.push(cluster, sequence)
        assert (answer.outcome, answer.head_step) == (PushOutcome.APPLIED, step + 1)
        self.applied.append((cluster, self.incarnations[cluster], sequence))
        self.next_sequence[cluster] = sequence + 1

    @rule(pick=st.integers(0, 10**6))
    def again(self, pick: int) -> None:
        """An update that was applied before: a duplicate, or of an incarnation that is over."""
        if not self.applied:
            return
        cluster, incarnation, sequence = self.applied[pick % len(self.applied)]
        answer = self.push(cluster, sequence, incarnation=incarnation)
        if incarnation == self.incarnations[cluster]:
            assert answer.outcome is PushOutcome.DUPLICATE
        else:
            assert answer.reason == Rejection.UNKNOWN_INCARNATION

    @rule(cluster=Cluster, kind=st.sampled_from(sorted(WRONG)))
    def wrong(self, cluster: str, kind: str) -> None:
        changes, reason = WRONG[kind]
        if kind == "late" and self.head.step <= 5 + len(CLUSTERS):
            return
        answer = self.push(cluster, self.next_sequence[cluster], **changes)
        assert answer.outcome is PushOutcome.REJECTED
        assert answer.reason == reason

    @rule(name=st.sampled_from(["nobody", "", "../north", "n" * 200]))
    def stranger(self, name: str) -> None:
        assert self.push("north", 1, cluster=name, incarnation=1).reason == Rejection.UNKNOWN_INCARNATION

    @rule(cluster=Cluster, count=st.integers(2, 6))
    def at_once(self, cluster: str, count: int) -> None:
        """The same update many times at once."""
        assert self.learner is not None
        sequence = self.next_sequence[cluster]
        sent = update(sequence, cluster=cluster, incarnation=self.incarnations[cluster], base_step=self.head.step)

        async def offered() -> list[UpdateAnswer]:
            assert self.learner is not None
            return await asyncio.gather(*(self.learner.pushes.push(sent, want_weights=False) for _ in range(count)))

        outcomes = sorted(answer.outcome for answer in self.loop.run_until_complete(offered()))
        assert outcomes == sorted([PushOutcome.APPLIED, *[PushOutcome.DUPLICATE] * (count - 1)])
        self.applied.append((cluster, self.incarnations[cluster], sequence))
        self.next_sequence[cluster] = sequence + 1

    @rule()
    def restart(self) -> None:
        weights = self.head.weights.copy()
        self.end()
        self.open()
        assert np.array_equal(self.head.weights, weights)

    @rule()
    def crash(self) -> None:
        """As after kill -9: what is acknowledged is on disk, and no last snapshot is taken."""
        weights = self.head.weights.copy()
        self.end(last_snapshot=False)
        self.open()
        assert np.array_equal(self.head.weights, weights)

    @invariant()
    def the_head_is_what_was_accepted(self) -> None:
        if self.learner is None:
            return
        assert self.head.step == self.head.ledger.accepted == len(self.applied)
        assert len(set(self.applied)) == len(self.applied)
        for cluster in CLUSTERS:
            own = [entry for entry in self.applied if entry[0] == cluster]
            record = self.head.ledger.clusters.get(cluster)
            assert (record.accepted if record else 0) == len(own)
            latest = [sequence for _, incarnation, sequence in own if incarnation == self.incarnations[cluster]]
            if record is not None and latest:
                assert record.sequences.highest == max(latest)
        assert np.isfinite(self.head.weights).all()

    def end(self, last_snapshot: bool = True) -> None:
        async def ended() -> None:
            assert self.learner is not None
            if last_snapshot:
                await self.learner.close()
            else:
                await self.learner.maintenance.close()
                await self.learner.log.close()

        self.loop.run_until_complete(ended())
        self.registry.close()
        self.state.close()

    def teardown(self) -> None:
        with contextlib.ExitStack() as last:
            last.callback(shutil.rmtree, self.folder)
            last.callback(self.loop.close)
            if self.learner is not None:
                self.end()
                named = [
                    (receipt.cluster, receipt.incarnation, receipt.sequence)
                    for receipt in read_receipts(self.settings.state_dir, SPEC.digest)
                ]
                assert named == self.applied
                audit(read_receipts(self.settings.state_dir, SPEC.digest))


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(max_examples=15, stateful_step_count=20, deadline=None, derandomize=True)
