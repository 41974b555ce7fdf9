"""Jobs' own metrics: what is read of them, what is not believed, and that nobody waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_server import MetricsServer, dripping, page

from cluster_agent.backends.kubernetes.scrapes import (
    AT_ONCE,
    NoReading,
    Reading,
    Scraped,
    Scrapes,
    jobs_to_scrape,
    page_of,
    read,
    seconds_between,
    value_of,
)
from cluster_agent.kubernetes.capacity import pod_facts
from cluster_agent.kubernetes.targets import ElasticTarget, MetricsEndpoint, elastic_target, job_facts

DEADLINE_SECONDS = 60.0
JOB = Scraped("uid", "10.0.0.1", "pod/0", 2, 9400, "/metrics", "samples_total", "all")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer().running() as made:
        yield made


def said(text: str) -> Callable[[str, int, str, float], bytes]:
    return lambda host, port, path, seconds: text.encode()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_page_is_read_and_a_number_taken_from_it(server: MetricsServer) -> None:
    server.answer = page(
        '# TYPE samples counter\nsamples_total{job="a"} 1.5e3 1700000000\nsamples_total_more 9\nall 2000\n'
    )
    content = page_of("127.0.0.1", server.port, "/metrics", 30.0)
    assert value_of(content, "samples_total") == 1500.0
    assert value_of(content, "all") == 2000.0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "there is no metric x"),
        ("xy 1\n", "there is no metric x"),
        ("x NaN\n", "x is NaN"),
        ("x -1\n", "x is negative"),
        ("x +Inf\n", "x is more than"),
        ("x lots\n", "x cannot be read"),
        ('x{a="1\n', "x cannot be read"),
        ('x{a="1"} 1\nx{a="2"} 2\n', "x has several series"),
    ],
)
def test_what_is_no_count_is_refused_with_a_line(text: str, line: str) -> None:
    with pytest.raises(NoReading, match=line):
        value_of(text.encode(), "x")


@given(st.binary(max_size=300))
def test_whatever_a_page_holds_it_is_a_count_or_refused(content: bytes) -> None:
    for text in (content, b"x " + content, b"x{" + content + b"} 1\n"):
        try:
            value = value_of(text, "x")
        except (NoReading, UnicodeDecodeError):
            continue
        assert 0.0 <= value <= 1e15


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (page("no", status="404 Not Found"), "answers 404"),
        (page("x" * (1 << 21)), "larger than 1 MB"),
        (dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), r"takes longer than 0.2 s"),
        (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), r"takes longer than 0.2 s"),
        (dripping(b"", b""), r"takes longer than 0.2 s"),
        (lambda connection, end: connection.sendall(b"SSH-2.0-x\r\n"), "is no page over HTTP"),
        (
            lambda connection, end: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"),
            "was cut before its end",
        ),
        (lambda connection, end: None, "no page over HTTP|does not answer"),
    ],
)
def test_a_pod_that_answers_badly_costs_no_more_than_the_deadline(
    server: MetricsServer, answer: Any, line: str
) -> None:
    server.answer = answer
    seconds = 0.2 if "longer" in line else 30.0
    with pytest.raises(NoReading, match=line):
        page_of("127.0.0.1", server.port, "/metrics", seconds)


def test_a_pod_that_does_not_answer_is_refused() -> None:
    with pytest.raises(NoReading, match="does not answer"):
        page_of("127.0.0.1", 9, "/metrics", 30.0)


def test_a_reading_has_its_time_and_its_size() -> None:
    reading = read(Reading(), JOB, said("samples_total 5\nall 10\n"), lambda: 100.0)
    assert (reading.samples, reading.total, reading.unix_seconds, reading.workers) == (5.0, 10.0, 100.0, 2)
    assert reading.problem == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("samples_total 4\nall 10\n", "samples_total goes backwards"),
        ("samples_total 11\nall 10\n", "samples_total is more than all"),
        ("samples_total NaN\nall 10\n", "samples_total is NaN"),
        ("samples_total -3\nall 10\n", "samples_total is negative"),
        ("samples_total 6\n", "there is no metric all"),
    ],
)
def test_a_liar_is_not_believed_until_it_says_what_can_be(text: str, line: str) -> None:
    before = read(Reading(), JOB, said("samples_total 5\nall 10\n"), lambda: 100.0)
    reading = read(before, JOB, said(text), lambda: 115.0)
    assert (reading.samples, reading.total) == (None, None)
    assert reading.problem == f"not believed: {line}"
    again = read(reading, JOB, said("samples_total 4\nall 10\n"), lambda: 130.0)
    assert again.samples is None, "what it once said is not forgotten"
    good = read(again, JOB, said("samples_total 6\nall 10\n"), lambda: 145.0)
    assert (good.samples, good.problem) == (6.0, "")


COUNTS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 5.0, 10.0, 1e15, 1e16]))


@given(st.lists(st.tuples(COUNTS, COUNTS, st.sampled_from("ab")), max_size=12))
def test_whatever_a_job_says_what_is_believed_never_falls_in_a_life_nor_passes_its_total(
    pages: list[tuple[float | None, float | None, str]],
) -> None:
    reading, most = Reading(), 0.0
    for samples, total, life in pages:
        values = {"samples_total": samples, "all": total}
        text = "".join(f"{name} {value}\n" for name, value in values.items() if value is not None)
        if life != reading.life:
            most = 0.0
        reading = read(reading, replace(JOB, life=life), said(text), lambda: 1.0)
        assert (reading.samples is None) == bool(reading.problem)
        if reading.samples is not None and reading.total is not None:
            assert most <= reading.samples <= reading.total <= 1e15
            most = reading.samples


def test_a_new_life_may_count_anew_and_silence_keeps_what_was_said() -> None:
    before = read(Reading(), JOB, said("samples_total 5\nall 10\n"), lambda: 100.0)
    other = replace(JOB, life="pod/1")
    assert read(before, other, said("samples_total 0\nall 10\n"), lambda: 115.0).samples == 0.0

    def silent(host: str, port: int, path: str, seconds: float) -> bytes:
        raise NoReading("takes longer than 1 s")

    kept = read(before, JOB, silent, lambda: 115.0)
    assert (kept.samples, kept.unix_seconds, kept.problem) == (5.0, 100.0, "takes longer than 1 s")


def test_time_between_two_readings_is_theirs_and_only_of_one_size_and_life() -> None:
    earlier, later = Reading(5.0, None, 100.0, 2, "a"), Reading(9.0, None, 115.0, 2, "a")
    assert seconds_between(earlier, later, 2) == 15.0
    assert seconds_between(earlier, later, 3) == 0.0
    assert seconds_between(earlier, Reading(9.0, None, 115.0, 3, "a"), 3) == 0.0
    assert seconds_between(earlier, Reading(9.0, None, 115.0, 2, "b"), 2) == 0.0
    assert seconds_between(later, later, 2) == 0.0
    assert seconds_between(None, later, 2) == 0.0


def target(**source: Any) -> ElasticTarget:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
    spec = {"targetRef": ref, "max": 4, "progressFrom": source}
    return elastic_target({"metadata": {"name": "t", "namespace": "team"}, "spec": spec})


def pod(index: str | None = "0", phase: str = "Running", restarts: int = 0, **metadata: Any) -> dict[str, Any]:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": index}
    owner = [{"uid": "job-uid", "controller": True}]
    return {
        "metadata": {"uid": "p", "annotations": annotations, "ownerReferences": owner, **metadata},
        "spec": {"nodeName": "a", "containers": []},
        "status": {"phase": phase, "podIP": "10.0.0.7", "containerStatuses": [{"restartCount": restarts}]},
    }


def to_scrape(source: dict[str, Any], *pods: dict[str, Any], **spec: Any) -> list[Scraped]:
    job = {"metadata": {"uid": "job-uid"}, "spec": {"parallelism": 2, "completions": 2, **spec}}
    kept = [found for each in pods if (found := pod_facts(each)) is not None]
    return jobs_to_scrape([target(**source)], lambda: {("Job", "team", "train"): job_facts(job)}, kept)


METRICS = {"metrics": {"port": 9400, "samples": "s", "total": "t"}}


def test_the_pod_with_index_0_is_scraped_while_it_runs() -> None:
    assert target(**METRICS).progress.endpoint == MetricsEndpoint(9400, "/metrics")  # type: ignore[union-attr]
    (one,) = to_scrape(METRICS, pod("1"), pod("0", restarts=3))
    assert one == Scraped("job-uid", "10.0.0.7", "p/3", 2, 9400, "/metrics", "s", "t")
    assert to_scrape(METRICS, pod("1"), pod(None)) == []
    labelled = pod(None, labels={"batch.kubernetes.io/job-completion-index": "0"})
    assert [each.host for each in to_scrape(METRICS, labelled)] == ["10.0.0.7"]
    assert to_scrape(METRICS, pod(phase="Pending")) == []
    assert to_scrape(METRICS, pod(phase="Failed")) == []
    assert to_scrape(METRICS, pod(deletionTimestamp="2026-01-01T00:00:00Z")) == []
    assert to_scrape(METRICS, pod(), suspend=True) == []
    assert to_scrape({"annotations": {"samples": "s"}}, pod()) == []


class Run:
    """Scrapes in their thread, of jobs that a test may change."""

    def __init__(self, server: MetricsServer, jobs: int) -> None:
        self.jobs = [
            Scraped(f"uid-{number}", "127.0.0.1", "a", 1, server.port, "/metrics", "x", "") for number in range(jobs)
        ]
        self.now = 0.0
        self.stop = threading.Event()
        self.scrapes = Scrapes(lambda: list(self.jobs), lambda: self.now, lambda: self.now)
        self.thread = threading.Thread(target=self.scrapes.run, args=(lambda seconds: self.stop.wait(0.01),))
        self.thread.start()


@pytest.fixture
def started(server: MetricsServer) -> Iterator[Callable[[int], Run]]:
    runs = []

    def start(jobs: int) -> Run:
        runs.append(Run(server, jobs))
        return runs[-1]

    yield start
    for run in runs:
        run.stop.set()
        run.thread.join(DEADLINE_SECONDS)
        assert not run.thread.is_alive()


def test_each_job_is_asked_again_when_it_is_due_and_forgotten_with_its_end(
    server: MetricsServer, started: Callable[[int], Run]
) -> None:
    server.answer = page("x 1\n")
    run = started(3)
    wait_for(lambda: len(run.scrapes.readings) == 3)
    asked = server.asked
    assert asked == 3
    server.answer = page("x 2\n")
    run.now = 15.0
    wait_for(lambda: {reading.samples for reading in run.scrapes.readings.values()} == {2.0})
    assert server.asked == 6
    run.scrapes.keep_only(["uid-1"])
    assert list(run.scrapes.readings) == ["uid-1"]


def test_many_silent_jobs_are_asked_a_few_at_once_and_hold_nobody_up() -> None:
    lock, release, stop = threading.Lock(), threading.Event(), threading.Event()
    active: list[str] = []
    most = 0

    def page(host: str, port: int, path: str, seconds: float) -> bytes:
        nonlocal most
        with lock:
            active.append(host)
            most = max(most, len(active))
        assert release.wait(DEADLINE_SECONDS)
        with lock:
            active.remove(host)
        raise NoReading("takes longer than 1 s")

    jobs = [Scraped(f"uid-{number}", str(number), "a", 1, 1, "/", "x", "") for number in range(3 * AT_ONCE)]
    scrapes = Scrapes(lambda: jobs, lambda: 0.0, lambda: 0.0, page)
    thread = threading.Thread(target=scrapes.run, args=(lambda seconds: stop.wait(0.01),))
    thread.start()
    wait_for(lambda: len(active) == AT_ONCE)
    assert scrapes.readings == {}, "who asks for readings has them at once"
    release.set()
    wait_for(lambda: len(scrapes.readings) == 3 * AT_ONCE)
    stop.set()
    thread.join(DEADLINE_SECONDS)
    assert most == AT_ONCE
    assert {(reading.samples, reading.problem) for reading in scrapes.readings.values()} == {
        (None, "takes longer than 1 s")
    }


def test_a_fault_in_reading_one_job_ends_no_other() -> None:
    stop = threading.Event()

    def page(host: str, port: int, path: str, seconds: float) -> bytes:
        if host == "bad":
            raise RuntimeError("of this program")
        return b"x 1\n"

    jobs = [Scraped(host, host, "a", 1, 1, "/", "x", "") for host in ("bad", "good")]
    scrapes = Scrapes(lambda: jobs, lambda: 0.0, lambda: 0.0, page)
    thread = threading.Thread(target=scrapes.run, args=(lambda seconds: stop.wait(0.01),))
    thread.start()
    wait_for(lambda: len(scrapes.readings) == 2)
    stop.set()
    thread.join(DEADLINE_SECONDS)
    assert scrapes.readings["good"].samples == 1.0
    assert "see the agent's log" in scrapes.readings["bad"].problem
