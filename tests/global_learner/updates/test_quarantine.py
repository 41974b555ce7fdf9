"""Who is put in quarantine, for how long, and who lets it out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import vector
from learner_process import LearnerProcess
from structlog.testing import capture_logs
from typer.testing import CliRunner

from global_learner.errors import FAULTY, Rejection, StateUnusable, UpdateRejected
from global_learner.policyctl.cli import app
from global_learner.settings import QuarantineSettings
from global_learner.updates.quarantine import Quarantine
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import push_request


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(folder: Path, clock: Clock | None = None, **changes) -> Quarantine:
    settings = QuarantineSettings(**{"rejections": 3, "within_updates": 5, "seconds": 60.0, **changes})
    return Quarantine(settings, folder, clock or Clock())


def faulty(quarantine: Quarantine, times: int, cluster: str = "north") -> None:
    for _ in range(times):
        quarantine.on_judged(cluster, Rejection.NOT_FINITE)


@given(st.lists(st.sampled_from([None, *Rejection]), max_size=40))
def test_it_begins_exactly_when_enough_of_the_latest_were_faulty(tmp_path_factory, reasons) -> None:
    quarantine = make(tmp_path_factory.mktemp("state"))
    counted: list[bool] = []
    for reason in reasons:
        quarantine.on_judged("north", reason)
        if reason is None or reason in FAULTY:
            counted.append(reason is not None)
        begun = sum(counted[-5:]) >= 3
        assert (quarantine.until("north") is not None) == begun
        if begun:
            return


def test_it_ends_by_itself_and_turns_away_until_then(tmp_path: Path) -> None:
    clock = Clock()
    quarantine = make(tmp_path, clock)
    faulty(quarantine, 3)
    quarantine.admit("south")
    with pytest.raises(UpdateRejected, match=r"quarantined: cluster north is in quarantine for 60 s more"):
        quarantine.admit("north")
    clock.now += 61
    quarantine.admit("north")
    assert quarantine.count == 0


def test_it_survives_a_restart_and_so_does_a_release(tmp_path: Path) -> None:
    faulty(make(tmp_path), 3)
    again = make(tmp_path)
    assert (again.until("north"), again.count) == (1060.0, 1)
    assert again.release("north")
    assert not again.release("north")
    assert make(tmp_path).until("north") is None


def test_a_torn_last_line_is_left_out_and_a_damaged_one_refused(tmp_path: Path) -> None:
    faulty(make(tmp_path), 3)
    record = tmp_path / "quarantine.jsonl"
    with record.open("a") as stream:
        stream.write('{"event": "rel')
    again = make(tmp_path)
    assert again.until("north") == 1060.0
    faulty(again, 3, "south")
    assert make(tmp_path).count == 2
    record.write_text("nonsense\n")
    with pytest.raises(StateUnusable, match="line 1: damaged"):
        make(tmp_path)


def test_an_emptied_record_is_said_once_and_begun_anew(tmp_path: Path) -> None:
    faulty(make(tmp_path), 3)
    (tmp_path / "quarantine.jsonl").write_text("")
    with capture_logs() as said:
        assert [make(tmp_path).count, make(tmp_path).count] == [0, 0]
    assert [line["event"] for line in said] == ["quarantine-record-empty"]
    faulty(make(tmp_path), 3)
    assert make(tmp_path).count == 1


def test_with_zero_seconds_nobody_is_quarantined(tmp_path: Path) -> None:
    quarantine = make(tmp_path, seconds=0.0)
    faulty(quarantine, 50)
    assert quarantine.count == 0


@pytest.mark.heavy
def test_a_faulty_cluster_is_shut_out_across_kill_9_until_policyctl_lets_it_in(tmp_path: Path) -> None:
    from learner_makers import update

    learner = LearnerProcess(tmp_path, quarantine={"rejections": 2, "within_updates": 4})
    learner.start()
    bad = vector(1)
    bad[0] = np.nan
    run = CliRunner().invoke
    try:
        with learner.channel() as channel:
            fleet = rpc.FleetStub(channel)
            fleet.Register(pb.RegisterRequest(cluster="north"), timeout=60)
            reasons = [fleet.Push(push_request(update(n, gradient=bad), False), timeout=60).reason for n in range(1, 4)]
        assert reasons == ["not-finite", "not-finite", "quarantined"]
        learner.kill()
        learner.start()
        with learner.channel() as channel:
            fleet = rpc.FleetStub(channel)
            assert fleet.Push(push_request(update(4), False), timeout=60).reason == "quarantined"
            assert learner.fleet().clusters[0].quarantined_until_unix_seconds > 0
            shown = run(app, ["fleet", "--learner", learner.address], env={"COLUMNS": "300"})
            assert "quarantined until" in shown.output
            released = run(app, ["cluster", "release", "north", "--learner", learner.address, "-o", "json"])
            assert '"released": true' in released.output
            assert fleet.Push(push_request(update(5), False), timeout=60).outcome == pb.PushReply.APPLIED
        unknown = run(app, ["cluster", "release", "nobody", "--learner", learner.address])
        assert "no cluster 'nobody'" in str(unknown.exception)
        assert learner.end() == 0
    finally:
        learner.close()
