"""A job's progress as Prometheus metrics, named `fedl2_elastic_<what>_<unit>`; read from its status at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elastic_runtime.control.messages import JobStatus
from elastic_runtime.errors import BadInput


class JobMetrics(Collector):
    """All metrics of one job, in a registry of its own.

    Args:
        status: called at each scrape, from the server's threads.
    """

    def __init__(self, status: Callable[[], JobStatus]) -> None:
        self._status = status
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """See `Collector.collect`."""
        status = self._status()
        yield from _progress(status)
        yield from _speed(status)
        yield from _tasks(status)


def serve_metrics(status: Callable[[], JobStatus], host: str, port: int) -> Callable[[], None]:
    """Answer on `http://host:port/metrics` until the returned function is called.

    Raises:
        BadInput: the port is taken, or the address is not this machine's.
    """
    try:
        server, _ = start_http_server(port, host, JobMetrics(status).registry)
    except OSError as error:
        raise BadInput(f"metrics cannot be served on {host}:{port} ({error.strerror}); name another port") from error

    def close() -> None:
        server.shutdown()
        server.server_close()

    return close


def _progress(status: JobStatus) -> Iterator[Metric]:
    phase = GaugeMetricFamily("fedl2_elastic_phase_info", "Where the job is: 1 for its phase.", labels=["job", "phase"])
    phase.add_metric([status.job, status.phase.value], 1.0)
    yield phase
    yield GaugeMetricFamily("fedl2_elastic_finished_steps", "Steps that every worker has finished.", status.step)
    yield GaugeMetricFamily("fedl2_elastic_durable_steps", "Steps that no failure can undo.", status.durable_step)
    yield GaugeMetricFamily("fedl2_elastic_expected_steps", "Steps of the whole job; 0 if unknown.", status.total_steps)
    yield GaugeMetricFamily("fedl2_elastic_finished_epochs", "Epochs trained, in parts.", status.epoch)
    yield CounterMetricFamily(
        "fedl2_elastic_samples_total", "Samples trained; those trained again after a loss count once.", status.samples
    )
    loss = GaugeMetricFamily("fedl2_elastic_loss_value", "Mean of the workers' newest losses; absent where unknown.")
    if status.loss is not None:
        loss.add_metric([], status.loss)
    yield loss
    blocks = GaugeMetricFamily(
        "fedl2_elastic_blocks_count", "Blocks of the model, by their holders.", labels=["holders"]
    )
    blocks.add_metric(["1"], status.blocks - status.blocks_with_replica)
    blocks.add_metric(["2"], status.blocks_with_replica)
    yield blocks
    yield GaugeMetricFamily(
        "fedl2_elastic_generation_number",
        "Starts from a checkpoint, the first one included.",
        status.generation,
    )


def _speed(status: JobStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "fedl2_elastic_speed_samples_per_second", "Samples per second, all workers.", status.samples_per_second
    )
    yield GaugeMetricFamily("fedl2_elastic_step_seconds", "Time of a step, the slowest worker's.", status.step_seconds)
    yield GaugeMetricFamily(
        "fedl2_elastic_stall_seconds", "What one worker has waited in resizes, the longest.", status.stall_seconds
    )
    yield GaugeMetricFamily(
        "fedl2_elastic_staleness_versions", "Asynchronous training: median of the newest updates.", status.staleness
    )


def _tasks(status: JobStatus) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("fedl2_elastic_tasks_count", "Tasks, by role and state.", labels=["role", "state"])
    for (role, state), count in sorted(Counter((task.role.value, task.state) for task in status.tasks).items()):
        tasks.add_metric([role, state], count)
    yield tasks
    sent = CounterMetricFamily("fedl2_elastic_sent_bytes_total", "Data that a task has sent.", labels=["task"])
    received = CounterMetricFamily(
        "fedl2_elastic_received_bytes_total", "Data that a task has received.", labels=["task"]
    )
    owned = GaugeMetricFamily("fedl2_elastic_owned_bytes", "Parameters that a server owns.", labels=["task"])
    for task in status.tasks:
        sent.add_metric([task.task], task.bytes_sent)
        received.add_metric([task.task], task.bytes_received)
        if task.owned_bytes:
            owned.add_metric([task.task], task.owned_bytes)
    yield from (sent, received, owned)
    requests = GaugeMetricFamily(
        "fedl2_elastic_requests_count", "Requests remembered, by kind and state.", labels=["kind", "state"]
    )
    for (kind, outcome), count in sorted(Counter((row.kind, row.state.value) for row in status.requests).items()):
        requests.add_metric([kind, outcome], count)
    yield requests
