"""Who is put in quarantine, for how long, and who lets it out."""

import zlib
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
from global_learner.section_settings import QuarantineSettings
from global_learner.updates.quarantine import Quarantine
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import push_request


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(folder: Path, clock: Clock | None = None, **changes) -> Quarantine:
    settings = QuarantineSettings(**{"rejections": 3, "within_updates": 5, "seconds": 60.0, **changes})
    clock = clock or Clock()
    return Quarantine(settings, folder, lambda: 1000.0 + clock.now, clock)


def faulty(quarantine: Quarantine, times: int, cluster: str = "north") -> None:
    for _ in range(times):
        quarantine.on_judged(cluster, Rejection.NOT_FINITE)


judgements = st.lists(st.sampled_from([None, *Rejection]), max_size=60)


def begun_after(quarantine: Quarantine, reasons) -> int | None:
    for number, reason in enumerate(reasons, start=1):
        quarantine.on_judged("north", reason)
        if quarantine.count:
            return number
    return None


@given(judgements)
def test_it_begins_when_faults_less_those_that_were_forgiven_use_up_the_budget(tmp_path_factory, reasons) -> None:
    level, expected = 0.0, None
    for number, reason in enumerate(reasons, start=1):
        if reason in FAULTY:
            level += 1
            if level > 2 + 1e-9:
                expected = number
                break
        elif reason is None:
            level = max(0.0, level - 1 / 5)
    assert begun_after(make(tmp_path_factory.mktemp("state")), reasons) == expected


@given(judgements)
def test_enough_faults_among_the_latest_always_suffice(tmp_path_factory, reasons) -> None:
    counted = [reason is not None for reason in reasons if reason is None or reason in FAULTY]
    enough = any(sum(counted[max(0, end - 5) : end]) >= 3 for end in range(1, len(counted) + 1))
    begun = begun_after(make(tmp_path_factory.mktemp("state")), reasons)
    assert begun is not None or not enough


def test_a_constant_share_of_faults_ends_in_quarantine_and_rare_ones_never_do(tmp_path: Path) -> None:
    def after(share_of_20: int, name: str) -> int | None:
        (tmp_path / name).mkdir()
        quarantine = Quarantine(QuarantineSettings(), tmp_path / name, Clock(), Clock())
        stream = [Rejection.NOT_FINITE if (n * share_of_20) % 20 < share_of_20 else None for n in range(4000)]
        return begun_after(quarantine, stream)

    of_7, of_2 = after(7, "seven"), after(2, "two")
    # In 20 updates the level grows by 7 − 13/20, or by 2 − 18/20; the budget is 7 and a bit.
    assert of_7 is not None and of_7 <= 40  # noqa: PT018
    assert of_2 is not None and of_2 <= 160  # noqa: PT018
    assert after(0, "none") is None
    quarantine = make(tmp_path, rejections=8, within_updates=20)
    assert begun_after(quarantine, ([Rejection.NOT_FINITE] + [None] * 24) * 400) is None


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


def old_record(folder: Path, *lines: str) -> None:
    """As learners wrote it before there was a checksum."""
    (folder / "quarantine.jsonl").write_text("".join(lines))


OLD_LINE = '{"event": "quarantined", "cluster": "%s", "unix_seconds": 1e3, "until_unix_seconds": %s, "reason": "x"}\n'
OLD_RELEASE = '{"event": "released", "cluster": "south", "unix_seconds": 1001.0}\n'


def test_a_record_of_an_older_learner_is_read_and_a_torn_last_line_of_it_left_out(tmp_path: Path) -> None:
    old_record(
        tmp_path, OLD_LINE % ("north", 1060.0), OLD_LINE % ("south", 1060.0), OLD_LINE % ("gone", 900.0), OLD_RELEASE,
        '{"event": "rel',
    )  # fmt: skip
    found = make(tmp_path)
    assert (found.remaining("north"), found.count) == (60.0, 1)
    found.keep()
    assert (make(tmp_path).remaining("north"), make(tmp_path).count) == (60.0, 1)
    old_record(tmp_path, OLD_LINE % ("north", 1060.0), "nonsense\n", OLD_RELEASE)
    with pytest.raises(StateUnusable, match=r"quarantine.jsonl: damaged \(line 2"):
        make(tmp_path)


def test_what_remains_is_kept_whatever_the_wall_clock_does_and_however_long_nobody_runs(tmp_path: Path) -> None:
    clock, wall = Clock(), Clock()
    settings = QuarantineSettings(rejections=1, within_updates=1, seconds=600.0)
    quarantine = Quarantine(settings, tmp_path, wall, clock)
    faulty(quarantine, 1)
    for jump in (1e9, -2e9):
        wall.now += jump
        assert quarantine.remaining("north") == 600.0
    clock.now += 200.0
    quarantine.keep()
    wall.now += 1e6
    again = Quarantine(settings, tmp_path, wall, Clock())
    assert again.remaining("north") == pytest.approx(400.0)
    assert again.until("north") == pytest.approx(wall.now + 400.0)


def test_what_remains_is_written_down_while_others_push_so_that_a_crash_costs_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    quarantine = make(tmp_path, clock, seconds=600.0)
    faulty(quarantine, 3)
    for _ in range(30):
        clock.now += 10.0
        quarantine.admit("south")
    assert make(tmp_path).remaining("north") == pytest.approx(300.0, abs=61.0)


def test_any_damage_of_the_record_is_named_at_the_start(tmp_path: Path) -> None:
    faulty(make(tmp_path), 3)
    record = tmp_path / "quarantine.jsonl"
    whole = record.read_bytes()
    assert not list(tmp_path.glob("*.partial*"))
    for at in range(len(whole)):
        for damaged in (
            whole[:at],
            whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :],
            whole[:at] + whole[at + 1 :],
        ):
            if not damaged:
                continue
            record.write_bytes(damaged)
            with pytest.raises(StateUnusable, match=r"quarantine\.jsonl: damaged"):
                make(tmp_path)
    record.write_bytes(whole)
    assert make(tmp_path).remaining("north") == 60.0


def test_an_emptied_record_is_said_once_and_begun_anew(tmp_path: Path) -> None:
    faulty(make(tmp_path), 3)
    (tmp_path / "quarantine.jsonl").write_text("")
    with capture_logs() as said:
        assert [make(tmp_path).count, make(tmp_path).count] == [0, 0]
    assert [line["event"] for line in said] == ["quarantine-record-empty"]
    faulty(make(tmp_path), 3)
    assert make(tmp_path).count == 1


def test_a_used_up_budget_is_used_up_after_a_restart_too(tmp_path: Path) -> None:
    first = make(tmp_path, rejections=8, within_updates=20)
    faulty(first, 6)
    first.on_judged("north", None)
    first.keep()
    again = make(tmp_path, rejections=8, within_updates=20)
    faulty(again, 1)
    assert again.count == 0  # 5 and 19/20, and one more
    faulty(again, 1)
    assert again.count == 1
    # Counted in faults, so that it holds whatever forgives one by then.
    faulty(again, 4, "south")
    again.keep()
    other = make(tmp_path, rejections=5, within_updates=50)
    assert begun_after(other, []) is None
    faulty(other, 1, "south")
    assert (other.remaining("south") > 0.0, other.count) == (True, 2)


def test_budgets_are_written_down_once_a_minute_so_that_a_crash_forgets_that_much(tmp_path: Path) -> None:
    clock = Clock()
    quarantine = make(tmp_path, clock, rejections=3)
    faulty(quarantine, 1)
    for _ in range(7):
        clock.now += 10.0
        quarantine.admit("south")
        quarantine.on_judged("south", None)
    written = (tmp_path / "quarantine.jsonl").stat().st_mtime_ns
    clock.now += 1000.0
    quarantine.admit("south")  # nothing changed since
    assert (tmp_path / "quarantine.jsonl").stat().st_mtime_ns == written
    after = make(tmp_path, rejections=3)  # killed
    faulty(after, 1)
    assert after.count == 0
    faulty(after, 1)
    assert after.count == 1


def test_a_record_without_budgets_is_read_and_counted_from_then_on(tmp_path: Path) -> None:
    body = '{"format": 2}\n{"remaining_seconds": {"north": 40.0}}\n'
    whole = body + f'{{"crc32": "{zlib.crc32(body.encode()):08x}"}}\n'
    (tmp_path / "quarantine.jsonl").write_text(whole)
    assert make(tmp_path).remaining("north") == 40.0
    assert '"count": 1' in (tmp_path / "quarantine.jsonl").read_text()
    assert make(tmp_path).remaining("north") == 40.0


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
            shown = run(app, ["fleet", "--learner", learner.operator_address], env={"COLUMNS": "300"})
            assert "quarantined until" in shown.output
            where = ("--learner", learner.operator_address)
            released = run(app, ["cluster", "release", "north", "--reason", "a new driver", *where, "-o", "json"])
            assert '"released": true' in released.output
            assert "north: out of quarantine: a new driver" in run(app, ["audit", *where]).output
            assert fleet.Push(push_request(update(5), False), timeout=60).outcome == pb.PushReply.APPLIED
        unknown = run(app, ["cluster", "release", "nobody", "--learner", learner.operator_address])
        assert "no cluster 'nobody'" in str(unknown.exception)
        assert learner.end() == 0
    finally:
        learner.close()
