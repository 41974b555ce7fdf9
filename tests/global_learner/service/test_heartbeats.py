"""What heartbeats may tell of jobs, and what the report's call and the HTTP port make of it."""

import json
import math
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from learner_process import LearnerProcess

from global_learner.errors import BadRequest
from global_learner.service.heartbeats import (
    MOST_INTERVENTIONS,
    MOST_JOBS,
    MOST_POINTS,
    MOST_SCHEDULERS,
    MOST_STEPS,
    check_status,
)
from global_learner.settings import TelemetrySettings
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

JOB = {
    "number": 7,
    "job_type": "vgg-16",
    "held": [{"seconds": 0.0}, {"seconds": 60.0, "workers": 2, "ps": 1}],
    "resizes": 0,
    "seconds": 900.0,
}
EVIL_NAME = "<script>"
DEADLINE_SECONDS = 60.0


def status(**changes) -> pb.ClusterStatus:
    return pb.ClusterStatus(jobs_running=1, baseline_policy="drf", job_timelines=[{**JOB, **changes}])


def test_a_sound_timeline_is_taken() -> None:
    check_status(status())


@pytest.mark.parametrize(
    "changes",
    [
        {"held": [{"seconds": 5.0}, {"seconds": 4.0}]},
        {"held": [{"seconds": -1.0}]},
        {"held": [{"seconds": math.nan}]},
        {"held": [{"seconds": 0.0}] * (MOST_POINTS + 1)},
        {"interventions": [{"seconds": math.inf, "reason": "nan"}]},
        {"interventions": [{"seconds": 1.0}] * (MOST_INTERVENTIONS + 1)},
        {"interventions": [{"seconds": 1.0, "reason": "x" * 300}]},
        {"seconds": math.inf},
        {"seconds": 1e300},
        {"job_type": "x" * 300},
    ],
)
def test_an_unsound_timeline_is_refused_by_its_number(changes: dict) -> None:
    with pytest.raises(BadRequest, match="job 7"):
        check_status(status(**changes))


def test_too_many_jobs_and_a_long_baseline_are_refused() -> None:
    with pytest.raises(BadRequest, match="at most 16"):
        check_status(pb.ClusterStatus(job_timelines=[JOB] * (MOST_JOBS + 1)))
    with pytest.raises(BadRequest, match="no job takes that long"):
        check_status(pb.ClusterStatus(avg_jct_seconds=1e300))
    with pytest.raises(BadRequest, match="baseline_policy"):
        check_status(pb.ClusterStatus(baseline_policy="x" * 300))


LOAD = {
    "begin_seconds": 60.0,
    "step_seconds": 60.0,
    "gpus_used": [1.0, -1.0],
    "jobs_waiting": [0.0, -1.0],
    "gpus": [4.0, -1.0],
}


def test_a_sound_load_is_taken_and_so_is_none() -> None:
    check_status(pb.ClusterStatus())
    check_status(
        pb.ClusterStatus(
            load=[LOAD, {**LOAD, "policy": "fifo-easy", "ended": True}],
            baselines=[{"policy": "fifo-easy", "avg_jct_seconds": 60.0}],
        )
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": [4.0]},
        {"gpus": [], "gpus_used": [], "jobs_waiting": []},
        {name: [1.0] * (MOST_STEPS + 1) for name in ("gpus", "gpus_used", "jobs_waiting")},
        {"gpus_used": [1.0, math.nan]},
        {"gpus_used": [1.0, math.inf]},
        {"jobs_waiting": [1.0, -2.0]},
        {"jobs_waiting": [1.0, 1e9]},
        {"begin_seconds": math.nan},
        {"begin_seconds": -1.0},
        {"nearly_done_seconds": math.nan},
        {"step_seconds": 0.0},
        {"step_seconds": math.inf},
        {"policy": EVIL_NAME},
    ],
)
def test_an_unsound_load_is_refused(changes: dict) -> None:
    with pytest.raises(BadRequest, match=r"status\.load"):
        check_status(pb.ClusterStatus(load=[{**LOAD, **changes}]))


def test_too_many_schedulers_or_one_twice_are_refused() -> None:
    for policies in (["drf", "drf"], [f"policy-{number}" for number in range(MOST_SCHEDULERS + 1)]):
        with pytest.raises(BadRequest, match=r"status\.load"):
            check_status(pb.ClusterStatus(load=[{**LOAD, "policy": policy} for policy in policies]))
        with pytest.raises(BadRequest, match=r"status\.baselines"):
            check_status(pb.ClusterStatus(baselines=[{"policy": policy} for policy in policies]))
    for wrong in ({"policy": "", "avg_jct_seconds": 1.0}, {"policy": "drf", "avg_jct_seconds": math.inf}):
        with pytest.raises(BadRequest, match=r"status\.baselines"):
            check_status(pb.ClusterStatus(baselines=[wrong]))


@pytest.mark.parametrize("name", ["acting_version", "refused_version", "learning_step"])
def test_a_number_that_no_database_keeps_is_refused(name: str) -> None:
    words = {"refused_reason": "damaged"} if name == "refused_version" else {}
    check_status(pb.ClusterStatus(**{name: 2**63 - 1}, **words))
    with pytest.raises(BadRequest, match=rf"status\.{name} is {2**63}"):
        check_status(pb.ClusterStatus(**{name: 2**63}, **words))


PAST = {
    "begin_seconds": 60.0,
    "end_seconds": 3660.0,
    "jobs": 40,
    "avg_jct_seconds": 60.0,
    "twin_jct_seconds": 62.0,
    "baselines": [{"policy": "fifo-easy", "avg_jct_seconds": 90.0}],
    "load": [LOAD, {**LOAD, "policy": "fifo-easy"}],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"avg_jct_seconds": math.inf},
        {"twin_jct_seconds": -1.0},
        {"end_seconds": 60.0},
        {"begin_seconds": math.nan},
        {"end_seconds": 1e300},
        {"begin_seconds": 8e11, "end_seconds": 9e11},
        {"load": [LOAD, LOAD]},
        {"load": [{**LOAD, "gpus": [1.0]}]},
        {"baselines": [{"policy": "", "avg_jct_seconds": 1.0}]},
        {"baselines": [{"policy": EVIL_NAME, "avg_jct_seconds": 1.0}]},
    ],
)
def test_a_sound_past_is_taken_and_an_unsound_one_refused(changes: dict) -> None:
    check_status(pb.ClusterStatus(replayed=PAST))
    with pytest.raises(BadRequest, match=r"status\.replayed"):
        check_status(pb.ClusterStatus(replayed={**PAST, **changes}))


def test_a_learner_of_before_takes_all_but_the_past_that_it_does_not_know() -> None:
    of_before = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(of_before)
    (status,) = [message for message in of_before.message_type if message.name == "ClusterStatus"]
    (added,) = [index for index, field in enumerate(status.field) if field.name == "replayed"]
    del status.field[added]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(of_before)
    kind = pool.FindMessageTypeByName(pb.ClusterStatus.DESCRIPTOR.full_name)
    heard = message_factory.GetMessageClass(kind)()
    heard.ParseFromString(pb.ClusterStatus(decisions=3, load=[LOAD], replayed=PAST).SerializeToString())
    heard.DiscardUnknownFields()
    assert heard.SerializeToString() == pb.ClusterStatus(decisions=3, load=[LOAD]).SerializeToString()


def test_the_page_is_shown_on_loopback_and_elsewhere_only_where_that_is_wanted() -> None:
    assert TelemetrySettings().shows_page
    assert not TelemetrySettings(live_page=False).shows_page
    assert not TelemetrySettings(http_listen=None, live_page=True).shows_page
    assert not TelemetrySettings(http_listen="0.0.0.0:7071").shows_page
    assert TelemetrySettings(http_listen="0.0.0.0:7071", live_page=True).shows_page


def beat(channel: grpc.Channel, reported: bytes) -> None:
    stub = rpc.FleetStub(channel)
    incarnation = stub.Register(pb.RegisterRequest(cluster="north"), timeout=DEADLINE_SECONDS).incarnation
    request = pb.HeartbeatRequest(
        cluster="north", incarnation=incarnation, status=pb.ClusterStatus.FromString(reported)
    )
    stub.Heartbeat(request, timeout=DEADLINE_SECONDS)


def get(learner: LearnerProcess, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    """Its answer; another one if it was too busy, as a page would."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer = get_once(learner, path, host)
        if answer[0] != 503 or time.monotonic() > deadline:
            return answer


def get_once(learner: LearnerProcess, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{learner.http_port}{path}", headers={"Host": host} if host else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:  # noqa: S310  (http alone)
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


@pytest.mark.heavy
def test_the_running_learner_tells_jobs_in_its_report_alone(tmp_path: Path) -> None:
    learner = LearnerProcess(tmp_path)
    learner.start()
    try:
        with learner.channel() as channel, learner.operators() as own:
            unknown = b"\xfa\x07\x05extra"  # field 127, of a newer agent or of a hostile one
            beat(channel, status().SerializeToString() + unknown)
            report = rpc.AdminStub(own).GetReport(pb.GetReportRequest(), timeout=DEADLINE_SECONDS)
        assert report.fleet.clusters[0].status.job_timelines[0].number == 7
        assert b"extra" not in report.SerializeToString()
        assert not learner.fleet().clusters[0].status.job_timelines
        code, headers, body = get(learner, "/report.json")
        assert (code, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json", "no-store")
        content = json.loads(body)
        assert content["jobs"][0]["held"] == [[0.0, 0, 0], [60.0, 2, 1]]
        assert [card["version"] for card in content["versions"]] == [1]
        code, headers, body = get(learner, "/")
        assert code == 200
        assert b'id="data">null</script>' in body
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/", "/report.json"):
            assert get(learner, path, host="evil.example")[0] == 403
        for path in ("/healthz", "/metrics"):
            assert get(learner, path, host="evil.example")[0] == 200
        assert get(learner, "/nothing")[0] == 404
        assert get(learner, "/", host=f"localhost:{learner.http_port}")[0] == 200
    finally:
        learner.close()


@pytest.mark.heavy
def test_without_the_page_the_port_tells_nothing_about_the_fleet(tmp_path: Path) -> None:
    learner = LearnerProcess(tmp_path, telemetry={"http_listen": "127.0.0.1:0", "live_page": False})
    learner.start()
    try:
        assert [get(learner, path)[0] for path in ("/", "/report.json", "/healthz")] == [404, 404, 200]
    finally:
        learner.close()
