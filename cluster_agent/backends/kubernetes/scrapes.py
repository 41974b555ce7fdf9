"""Scrapes of jobs' own metrics: each job's progress, read in threads of its own, so that no decision waits for a pod.

Of each job the newest reading is kept, with its time. Who does not answer keeps what was read before; what cannot be
(less than before in one life, more than all, no number) is not believed, and counts as unknown until it says something
else. A life ends with the pod, or with a start of its containers: after it a job may count anew.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Final

import structlog
from prometheus_client.parser import text_string_to_metric_families

from cluster_agent.kubernetes.capacity import PodFacts
from cluster_agent.kubernetes.targets import ElasticTarget, TargetFacts
from foundation.clocks import Clock, UnixClock

_log = structlog.get_logger()

SCRAPE_SECONDS: Final = 1.0
"""Deadline of a scrape."""
EVERY_SECONDS: Final = 15.0
"""Between two of a job; Prometheus' usual interval."""
AT_ONCE: Final = 8
"""Scrapes that run side by side: two thousand silent jobs take four minutes, a slot."""
_POLL_SECONDS: Final = 1.0
"""Between two looks at what is to be scraped."""


# A job's pod is its user's program: it may answer slowly, for ever, with gigabytes, or with anything else than numbers.
# Nothing of it is waited for longer, or kept, than what is asked for.

LARGEST_BYTES: Final = 1 << 20
"""Of a page; thousands of metrics."""
MOST: Final = 1e15
"""Of a count of samples."""


class NoReading(Exception):
    """A page gives no number; the line says why, without numbers that change from page to page."""


def page_of(host: str, port: int, path: str, deadline_seconds: float) -> bytes:
    """Read a page over HTTP; the deadline is of all of it, from the connection to the last byte.

    Raises:
        NoReading: it could not be read whole in time.
    """
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connection = HTTPConnection(host, port, timeout=deadline_seconds)
    late, opened = threading.Event(), list[socket.socket]()

    def cut() -> None:
        late.set()
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    # A time-out of the socket is one of each byte; this is one of them all.
    timer = threading.Timer(deadline_seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        # The connection forgets its socket once the response has it.
        opened.append(connection.sock)
        if late.is_set():
            raise TimeoutError
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise NoReading(f"{where} answers {response.status}")
        content = response.read(LARGEST_BYTES + 1)
        is_cut = bool(response.length) and len(content) <= LARGEST_BYTES
    except (HTTPException, OSError, ValueError) as error:
        raise NoReading(f"{where} {_why(error, late.is_set(), deadline_seconds)}") from error
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise NoReading(f"{where} {_why(TimeoutError(), True, deadline_seconds)}")
    if is_cut:
        raise NoReading(f"{where} was cut before its end")
    if len(content) > LARGEST_BYTES:
        raise NoReading(f"{where} is larger than {LARGEST_BYTES >> 20} MB")
    return content


def _why(error: Exception, late: bool, deadline_seconds: float) -> str:
    if late or isinstance(error, TimeoutError):
        return f"takes longer than {deadline_seconds:g} s"
    if isinstance(error, OSError):
        return "does not answer"
    return f"is no page over HTTP ({type(error).__name__})"


def value_of(page: bytes, name: str) -> float:
    """The one value that a page has of a metric.

    Raises:
        NoReading: it has none, several, or one that is no count.
    """
    # Only lines of this metric are read: a page is large, and every agent reads many.
    start = name.encode()
    lines = [line for line in page.splitlines() if line.startswith(start)]
    values = []
    try:
        for family in text_string_to_metric_families(b"\n".join([*lines, b""]).decode()):
            values += [sample.value for sample in family.samples if sample.name == name]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NoReading(f"{name} cannot be read") from error
    if not values:
        raise NoReading(f"there is no metric {name}")
    if len(values) > 1:
        raise NoReading(f"{name} has several series; export one")
    (value,) = values
    if math.isnan(value):
        raise NoReading(f"{name} is NaN")
    if value < 0.0:
        raise NoReading(f"{name} is negative")
    if value > MOST:
        raise NoReading(f"{name} is more than {MOST:g}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Scraped:
    """A job to scrape.

    Attributes:
        host: of its pod with completion index 0.
        life: of that pod's containers; counts may begin anew with another.
        total: name of the metric that says how many samples there will be; empty where there is none.
    """

    uid: str
    host: str
    life: str
    workers: int
    port: int
    path: str
    samples: str
    total: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a job said last.

    Attributes:
        samples: that it has trained; None where it is not known, or not believed.
        workers: that it had then.
        life: in which it said so; `most` is the most that it said in it.
        problem: why it is not known, or not newer, in a line; empty where all is well.
    """

    samples: float | None = None
    total: float | None = None
    unix_seconds: float = 0.0
    workers: int = 0
    life: str = ""
    most: float = 0.0
    problem: str = ""


Page = Callable[[str, int, str, float], bytes]
"""Reads a page: of a host, a port and a path, within so many seconds; see `page_of`."""


def jobs_to_scrape(
    targets: Iterable[ElasticTarget],
    found: Callable[[], Mapping[tuple[str, str, str], TargetFacts]],
    pods: Iterable[PodFacts],
) -> list[Scraped]:
    """The jobs whose targets name metrics, as far as their pod with completion index 0 runs.

    Objects and pods are looked through only where a target names metrics: most clusters have none, and many pods.
    """
    with_metrics = [each for each in targets if each.progress is not None and each.progress.endpoint is not None]
    objects = found() if with_metrics else {}
    pods_of: dict[str, tuple[ElasticTarget, TargetFacts]] = {}
    for target in with_metrics:
        facts = objects.get(target.object_key)
        if facts is not None:
            pods_of.setdefault(facts.uid, (target, facts))
    if not pods_of:
        return []
    to_scrape = {}
    for pod in pods:
        if pod.address and not pod.is_terminating and pod.owner in pods_of:
            target, facts = pods_of[pod.owner]
            source = target.progress
            if source is None or source.endpoint is None or facts.is_over or not facts.workers:
                continue
            where = source.endpoint
            to_scrape[facts.uid] = Scraped(
                facts.uid, pod.address, pod.life, facts.workers, where.port, where.path, source.samples, source.total
            )
    return list(to_scrape.values())


def read(before: Reading, job: Scraped, page: Page, unix_seconds: Callable[[], float]) -> Reading:
    """A job's next reading: asks it, and believes it or does not."""
    try:
        content = page(job.host, job.port, job.path, SCRAPE_SECONDS)
    except NoReading as error:
        return replace(before, problem=str(error))  # what it said last is still the newest
    reading = Reading(unix_seconds=unix_seconds(), workers=job.workers, life=job.life)
    most = before.most if before.life == job.life else 0.0
    try:
        samples = value_of(content, job.samples)
        total = value_of(content, job.total) if job.total else None
    except NoReading as error:
        return replace(reading, most=most, problem=f"not believed: {error}")
    if samples < most:
        return replace(reading, most=most, problem=f"not believed: {job.samples} goes backwards")
    if total is not None and samples > total:
        return replace(reading, most=most, problem=f"not believed: {job.samples} is more than {job.total}")
    return replace(reading, samples=samples, total=total, most=samples)


def seconds_between(earlier: Reading | None, later: Reading | None, workers: int) -> float:
    """Between two readings in one life, with so many workers at both; 0 where they say nothing of one speed."""
    if earlier is None or later is None or earlier.life != later.life:
        return 0.0
    same = earlier.workers == later.workers == workers
    return max(0.0, later.unix_seconds - earlier.unix_seconds) if same else 0.0


class Scrapes:
    """Keeps the newest reading of each job; `run` in a thread of its own, all else from any."""

    def __init__(
        self,
        jobs: Callable[[], Iterable[Scraped]],
        clock: Clock,
        unix_clock: UnixClock,
        page: Page = page_of,
    ) -> None:
        self._jobs, self._clock, self._unix_clock, self._page = jobs, clock, unix_clock, page
        self._lock = threading.Lock()
        self._readings: dict[str, Reading] = {}
        self._scraped_seconds: dict[str, float] = {}
        self._under_way: set[str] = set()

    @property
    def readings(self) -> Mapping[str, Reading]:
        """The newest of each job, by its uid."""
        with self._lock:
            return dict(self._readings)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Scrape until `wait`, which waits so many seconds, says True."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scrape") as pool:
            while True:
                for job in self._due():
                    pool.submit(self._scrape, job)
                if wait(_POLL_SECONDS):
                    pool.shutdown(wait=False, cancel_futures=True)
                    return

    def _due(self) -> list[Scraped]:
        """Jobs to be asked now; none whose last scrape is still under way or has yet to begin."""
        jobs, now = list(self._jobs()), self._clock()
        with self._lock:
            there = {job.uid for job in jobs}
            gone = [uid for uid in self._scraped_seconds if uid not in there and uid not in self._under_way]
            for uid in gone:
                del self._scraped_seconds[uid]
            due = [
                job
                for job in jobs
                if job.uid not in self._under_way
                and now - self._scraped_seconds.get(job.uid, -EVERY_SECONDS) >= EVERY_SECONDS
            ]
            for job in due:
                self._under_way.add(job.uid)
                self._scraped_seconds[job.uid] = now
        return due

    def keep_only(self, uids: Iterable[str]) -> None:
        """Forget the readings of other jobs."""
        there = set(uids)
        with self._lock:
            for uid in [uid for uid in self._readings if uid not in there]:
                del self._readings[uid]

    def _scrape(self, job: Scraped) -> None:
        with self._lock:
            before = self._readings.get(job.uid, Reading())
        try:
            reading = read(before, job, self._page, self._unix_clock)
        except Exception:
            # What one job's program says must not end the reading of all others.
            _log.exception("scrape-fault", host=job.host, port=job.port)
            reading = replace(before, problem="a fault of this program; see the agent's log")
        with self._lock:
            self._readings[job.uid] = reading
            self._under_way.discard(job.uid)
