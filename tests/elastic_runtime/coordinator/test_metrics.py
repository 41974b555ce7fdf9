"""What a scrape of a job shows."""

import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from reserved_port import ReservedPort

from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, TaskStatus
from elastic_runtime.coordinator.metrics import JobMetrics, serve_metrics
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import JobPhase, TaskRole

STATUS = JobStatus(
    job="net-1",
    phase=JobPhase.RESIZING,
    step=12,
    durable_step=10,
    samples=384,
    loss=0.5,
    tasks=(
        TaskStatus("ps-0", TaskRole.SERVER, "member", owned_bytes=100, bytes_sent=7),
        TaskStatus("worker-0", TaskRole.WORKER, "member", bytes_received=8),
        TaskStatus("worker-1", TaskRole.WORKER, "wanted"),
    ),
    requests=(RequestState("a", "resize", RequestOutcome.DONE), RequestState("b", "resize", RequestOutcome.RUNNING)),
)


def scraped(status: JobStatus) -> list[str]:
    lines = generate_latest(JobMetrics(lambda: status).registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_a_scrape_shows_progress_tasks_and_requests() -> None:
    lines = scraped(STATUS)
    for line in (
        'fedl2_elastic_phase_info{job="net-1",phase="resizing"} 1.0',
        "fedl2_elastic_finished_steps 12.0",
        "fedl2_elastic_durable_steps 10.0",
        "fedl2_elastic_samples_total 384.0",
        "fedl2_elastic_loss_value 0.5",
        'fedl2_elastic_tasks_count{role="worker",state="wanted"} 1.0',
        'fedl2_elastic_sent_bytes_total{task="ps-0"} 7.0',
        'fedl2_elastic_received_bytes_total{task="worker-0"} 8.0',
        'fedl2_elastic_requests_count{kind="resize",state="running"} 1.0',
    ):
        assert line in lines
    assert [line for line in lines if "owned" in line] == ['fedl2_elastic_owned_bytes{task="ps-0"} 100.0']


def test_an_unknown_loss_is_absent_rather_than_zero() -> None:
    assert not [line for line in scraped(replace(STATUS, loss=None)) if "loss" in line]


def test_metrics_are_served_until_closed_and_a_taken_port_is_named() -> None:
    reserved = ReservedPort()
    port = reserved.port
    close = serve_metrics(lambda: STATUS, "127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert b"fedl2_elastic_finished_steps 12.0" in answer.read()
        with pytest.raises(BadInput, match=f"127.0.0.1:{port}.*name another port"):
            serve_metrics(lambda: STATUS, "127.0.0.1", port)
    finally:
        close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
    reserved.close()
