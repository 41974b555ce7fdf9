"""Two learners on one database: the active one killed or frozen, or the database gone; nothing acknowledged is lost.

Clusters push without pause, to whichever of the two answers, and offer a push again until it is answered. In the end
the log and its receipts are counted: every acknowledged update is there, once.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from learner_makers import SPEC, vector
from learner_process import DEADLINE_SECONDS, LearnerProcess
from postgres_server import PostgresServer, own_server, shared_server
from reserved_port import ReservedPort

from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.settings import LearnerConnectionSettings
from global_learner.storage.receipts import audit, read_receipts
from policy_net.errors import LearnerUnreachable
from policy_net.exchange.enrolled_identity import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import GradientUpdate, push_request

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform != "linux", reason="freezes processes by a signal")]

CLUSTERS = ("north", "south", "east")
LEASE_SECONDS = 6.0
"""Far above what a busy machine holds a learner up for: one that loses its lease unasked is no part of these tests."""
FAILOVERS = 3
PUBLISH_EVERY = 30
MORE = 40
"""Updates that are waited for between two disturbances."""
_MOMENTARY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
"""A learner that ends cancels what is under way."""


class Pusher:
    """One cluster: pushes until stopped, offering each update until one of the learners answers."""

    def __init__(self, learners: list[LearnerProcess], cluster: str, stop: threading.Event) -> None:
        self.cluster = cluster
        self.acknowledged: dict[int, int] = {}
        self.refusals: list[str] = []
        self.answered_at = time.monotonic()
        self.error: BaseException | None = None
        self._channels = [learner.channel() for learner in learners]
        self._next = itertools.cycle([rpc.FleetStub(channel) for channel in self._channels])
        self._fleet = next(self._next)
        self._stop = stop
        self.thread = threading.Thread(target=self._run, name=cluster)

    def _call(self, method: str, request: Any) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                reply = getattr(self._fleet, method)(request, timeout=2.0)
            except grpc.RpcError as error:
                self.refusals.append(f"{error.code().name}: {error.details()}")
                passes = error.code() in _MOMENTARY
                if not passes or time.monotonic() > deadline:
                    raise
                self._fleet = next(self._next)
                time.sleep(0.02)
            else:
                self.answered_at = time.monotonic()
                return reply

    def _run(self) -> None:
        try:
            registered = self._call("Register", pb.RegisterRequest(cluster=self.cluster))
            self.incarnation, base = registered.incarnation, registered.head_step
            for sequence in itertools.count(1):
                if self._stop.is_set():
                    return
                gradient = vector(CLUSTERS.index(self.cluster) * 1_000_000 + sequence)
                update = GradientUpdate(
                    self.cluster, self.incarnation, sequence, base, SPEC.digest, gradient, 8, 8.0, replayed=True
                )
                reply = self._call("Push", push_request(update, want_weights=False))
                assert reply.outcome != pb.PushReply.REJECTED, reply.reason
                assert reply.head_step >= base, "an acknowledged head went backwards"
                base = reply.head_step
                self.acknowledged[sequence] = reply.head_step
        except BaseException as error:
            self.error = error
        finally:
            for channel in self._channels:
                channel.close()


class Pair:
    """Two learners with one state directory and one database."""

    def __init__(self, folder: Path, url: str, **sections: Any) -> None:
        self.state_dir = folder / "shared"
        self.learners: list[LearnerProcess] = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            self.learners.append(
                LearnerProcess(
                    folder / name,
                    state_dir=str(self.state_dir),
                    database=url,
                    lease_seconds=LEASE_SECONDS,
                    durability={"snapshot_every_steps": 25},
                    publish={"every_steps": PUBLISH_EVERY, "keep_versions": 0, "average_decay": 0.0},
                    ingest={"max_staleness_steps": 100_000},
                    telemetry={"http_listen": None, "log_level": "warning"},
                    **sections,
                )
            )
        for learner in self.learners:
            learner.state_dir = self.state_dir
        self.stop = threading.Event()
        self.pushers = [Pusher(self.learners, cluster, self.stop) for cluster in CLUSTERS]

    @property
    def count(self) -> int:
        return sum(len(pusher.acknowledged) for pusher in self.pushers)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.count < count:
            assert all(pusher.error is None for pusher in self.pushers), [pusher.error for pusher in self.pushers]
            assert time.monotonic() < deadline, [learner.log.read_text()[-3000:] for learner in self.learners]
            time.sleep(0.005)

    def published(self) -> pb.GetFleetReply:
        """What the active one tells operators, once every version that is due is there."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                fleet = self.learners[0].fleet()
            except grpc.RpcError as error:
                # One that has just taken over still reads what the one before has left.
                if error.code() not in _MOMENTARY or time.monotonic() > deadline:
                    raise
            else:
                if fleet.latest_version == 1 + fleet.head_step // PUBLISH_EVERY:
                    return fleet
                assert time.monotonic() < deadline, f"at step {fleet.head_step} v{fleet.latest_version} is the newest"
            time.sleep(0.02)

    def check(self) -> None:
        """Stop pushing, and count."""
        self.stop.set()
        for pusher in self.pushers:
            pusher.thread.join(DEADLINE_SECONDS)
            assert not pusher.thread.is_alive()
            assert pusher.error is None, pusher.error
        fleet = self.published()
        for learner in self.learners:
            learner.close()
        (term,) = self.state_dir.glob("term-*")
        receipts = list(read_receipts(term, SPEC.digest))
        counts = audit(iter(receipts))
        assert len(receipts) == fleet.head_step
        steps = {(receipt.cluster, receipt.sequence): receipt.step for receipt in receipts}
        for pusher in self.pushers:
            assert counts[pusher.cluster, pusher.incarnation] == len(pusher.acknowledged)
            for sequence, head in pusher.acknowledged.items():
                assert steps[pusher.cluster, sequence] <= head


@contextmanager
def running(folder: Path, url: str) -> Iterator[Pair]:
    """Both learners, the first one active, and clusters that push."""
    pair = Pair(folder, url)
    try:
        pair.learners[0].start()
        pair.learners[1].begin()
        for pusher in pair.pushers:
            pusher.thread.start()
        pair.wait_for(MORE)
        yield pair
    finally:
        pair.stop.set()
        for learner in pair.learners:
            learner.close()


def test_a_killed_learner_is_replaced_again_and_again(tmp_path: Path) -> None:
    with running(tmp_path, shared_server().new_database()) as pair:
        active, standby = pair.learners
        for _ in range(FAILOVERS):
            assert not standby.serves
            active.kill()
            killed_at = time.monotonic()
            standby.wait()
            pair.wait_for(pair.count + 1)
            print(f"failover after SIGKILL: {time.monotonic() - killed_at:.2f} s (lease {LEASE_SECONDS} s)")
            pair.wait_for(pair.count + MORE)
            active.begin()
            active, standby = standby, active
        pair.check()


def test_a_frozen_learner_that_wakes_writes_nothing_and_ends(tmp_path: Path) -> None:
    server, rng = shared_server(), random.Random(63)
    url = server.new_database()
    with running(tmp_path, url) as pair:
        frozen, standby = pair.learners
        for fence in range(2, 2 + FAILOVERS):
            # At any moment: amid a group of the log, a snapshot, a version.
            pair.wait_for(pair.count + rng.randrange(1, PUBLISH_EVERY))
            os.kill(frozen.pid, signal.SIGSTOP)
            standby.wait()
            pair.wait_for(pair.count + rng.randrange(1, MORE))
            assert frozen.end(signal.SIGCONT) == 1
            assert "another learner took the lease" in frozen.log.read_text()
            pair.wait_for(pair.count + MORE)
            assert server.sql(url, "SELECT fence FROM learner_lease.lease") == str(fence)
            frozen.begin()
            frozen, standby = standby, frozen
        pair.check()


def test_a_learner_that_is_told_to_end_hands_over_at_once(tmp_path: Path) -> None:
    with running(tmp_path, shared_server().new_database()) as pair:
        active, standby = pair.learners
        assert active.end() == 0
        standby.wait()
        pair.wait_for(pair.count + MORE)
        pair.check()


def test_a_standby_says_whom_it_waits_for_and_is_not_ready(tmp_path: Path) -> None:
    with contextlib.closing(ReservedPort()) as page:
        telemetry = {"http_listen": page.address, "log_level": "info"}
        pair = Pair(tmp_path, shared_server().new_database())
        pair.learners[1].sections["telemetry"] = telemetry
        try:
            active, standby = pair.learners
            active.start()
            standby.begin()
            health = until_answered(lambda: answer(page.address, "/healthz"))
            until(lambda: "is active, number 1" in answer(page.address, "/healthz")[1])
            assert health[0] == 200
            assert health[1].startswith("standby: ")
            assert answer(page.address, "/readyz")[0] == 503
            active.kill()
            standby.wait()
            until(lambda: answer(page.address, "/healthz") == (200, "ok\n"))
            assert answer(page.address, "/readyz")[0] == 200
            assert standby.end() == 0
        finally:
            for learner in pair.learners:
                learner.close()


def test_a_learner_with_a_state_directory_of_its_own_ends_at_its_start_and_not_when_it_is_needed(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, shared_server().new_database())
    try:
        active, other = pair.learners
        active.start()
        other.sections["state_dir"] = "a-volume-of-its-own"
        other.begin()
        assert other.wait_end() == 2
        (line,) = other.log.read_text().splitlines()
        assert "a-volume-of-its-own is another directory than the one that goes with this database" in line
        assert "(ReadWriteMany)" in line
        assert list((other.folder / "a-volume-of-its-own").glob("*")) == []
        other.sections["state_dir"] = str(pair.state_dir)
        other.begin()
        assert active.end() == 0
        other.wait()
        assert other.end() == 0
    finally:
        for learner in pair.learners:
            learner.close()


def answer(address: str, path: str) -> tuple[int, str]:
    """Status and text of a page; nobody there is an agent's `LearnerUnreachable`."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
        except ConnectionError as error:
            raise LearnerUnreachable(str(error)) from error
        return reply.status, reply.read().decode()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not until_answered(holds):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def test_an_enrolled_agent_finds_the_next_learner_and_is_known_there(tmp_path: Path) -> None:
    with contextlib.closing(ReservedPort()) as enroll:
        pair = Pair(tmp_path, shared_server().new_database(), identity={"enroll_port": enroll.port})
        try:
            first, second = pair.learners
            first.start()
            with first.operators() as channel:
                asked = pb.EnrollClusterRequest(cluster="north")
                reported = rpc.AdminStub(channel).EnrollCluster(asked, timeout=DEADLINE_SECONDS)
            invitation = tmp_path / "north.enrollment"
            EnrollmentFile(
                "north",
                reported.token,
                reported.enroll_port,
                reported.expires_unix_seconds,
                reported.authority.decode(),
            ).write(invitation)
            settings = LearnerConnectionSettings(
                address=first.address, further_addresses=(second.address,), enrollment_file=invitation
            )
            agent = LearnerClient(settings, "north", lambda _method, _outcome: None, tmp_path / "agent")
            before = until_answered(lambda: agent.register(SPEC.digest, []))
            assert first.end() == 0  # on one machine both would have the port for enrollment
            second.start()
            after = until_answered(lambda: agent.register(SPEC.digest, []))
            assert after.incarnation > before.incarnation
            assert (pair.state_dir / "identity" / "admin.pem").is_file()
            agent.close()
        finally:
            for learner in pair.learners:
                learner.close()


def until_answered(ask: Callable[[], Any]) -> Any:
    """As an agent does, which tries again while nobody answers."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return ask()
        except LearnerUnreachable:
            assert time.monotonic() < deadline, "nobody answers"
            time.sleep(0.02)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    own = own_server()
    yield own
    own.close()


def test_without_its_database_a_learner_takes_nothing_and_then_goes_on(tmp_path: Path, server: PostgresServer) -> None:
    with running(tmp_path, server.new_database()) as pair:
        server.stop()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not all("not the active one" in "".join(pusher.refusals) for pusher in pair.pushers):
            assert time.monotonic() < deadline, [pusher.refusals[-3:] for pusher in pair.pushers]
            time.sleep(0.02)
        assert all(refusal.startswith(("UNAVAILABLE", "DEADLINE")) for p in pair.pushers for refusal in p.refusals)
        reported = pair.count
        server.start()
        pair.wait_for(reported + MORE)
        assert sum(learner.serves for learner in pair.learners) >= 1
        pair.check()
