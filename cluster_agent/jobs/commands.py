"""The commands `cluster-agent jobs`, `job`, `logs`, `explain`, `cancel`, `suspend`, `resume` and `delete`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import JobRefused
from cluster_agent.jobs.client import POLL_SECONDS, JobClient, Name, Names, Socket, Watch, changing_polls, check_done
from cluster_agent.jobs.cluster_access import Config, Context, Kubeconfig
from cluster_agent.jobs.views import clock_time, decision_rows, job_table, jobs_table, one_job, tasks
from foundation.figures import counted
from foundation.files import open_ordinary
from foundation.growing_file import GrowingFile
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

if TYPE_CHECKING:
    from rich.console import Group

    from foundation.tables import FittedTable

_WATCH_SECONDS = 1.0
_MOST_LINES = 1_000_000


_TAIL_BYTES = 4096


class JobLogs:
    """Reads what was written since it was last asked, at first only the last `tail` lines of each log.

    These are all logs, the launcher's too, unless a `task` is named.
    """

    def __init__(self, launcher: Path, tasks: Path, task: str = "", tail: int | None = None) -> None:
        self._launcher = launcher
        self._tasks = tasks
        self._task = task
        self._tail = tail
        self._read: dict[Path, GrowingFile] = {}
        self._reported: set[Path] = set()

    @property
    def files(self) -> list[Path]:
        """Those that are there: the launcher's, then tasks' by name."""
        if self._task:
            return [path for path in (self._tasks / f"{self._task}.log",) if path.exists()]
        return [path for path in (self._launcher, *sorted(self._tasks.glob("*.log"))) if path.exists()]

    def read(self, *, last: bool = True) -> Iterator[bytes]:
        """New lines, each with its end; at the `last` reading also a line that has no end yet."""
        for path in self.files:
            prefix = b"" if self._task or path == self._launcher else f"{path.stem} | ".encode()
            file = self._read.setdefault(path, GrowingFile(path, self._tail))
            try:
                for line in file.read(last=last):
                    yield prefix + line
            except OSError as error:  # a script may have put something else there; the others are read all the same
                if path not in self._reported:
                    yield f"{path}: cannot be read: {error.strerror}\n".encode()
                self._reported.add(path)
        self._tail = None  # of what begins from now on everything is new


def with_last_words(facts: dict[str, Any]) -> dict[str, Any]:
    """A job's facts, and `lastLine`: the newest line that any of its workers wrote, None if none did; and its time."""
    written = []
    for path in Path(facts["logs"]).glob("worker-*.log"):
        with contextlib.suppress(OSError):
            written.append((path.stat().st_mtime, path))
    lines = ((line, seconds) for seconds, path in sorted(written, reverse=True) if (line := _last(path)))
    newest = next(lines, None)
    return {**facts, "lastLine": newest and newest[0], "lastLineUnixSeconds": newest and newest[1]}


def _last(path: Path) -> str:
    """The last line of a file that is no launcher's; empty if there is none."""
    try:
        with FileIO(open_ordinary(path)) as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.strip() and not line.startswith("--- worker-")), "")


def jobs(
    active: Annotated[bool, typer.Option("--active", help="Only those that have not ended.")] = False,
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """List all jobs."""
    found = _polled_jobs(socket, {}, watch, active)
    if watch:
        show_again(found, job_table, output, jobs_table)
    else:
        all_jobs = next(found)
        show(output, all_jobs, lambda: job_table(all_jobs), lambda: jobs_table(all_jobs))


def job(
    name: Name,
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Show one job."""
    found = (with_last_words(jobs[0]) for jobs in _polled_jobs(socket, {"name": name}, watch))
    if watch:
        show_again(found, lambda facts: one_job(facts, time.time()), output)
    else:
        facts = next(found)
        show(output, facts, lambda: one_job(facts, time.time()))


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    task: Annotated[str, typer.Option(help="Of a task such as worker-0; of all, by its name, unless given.")] = "",
    tail: Annotated[
        int | None, typer.Option("-n", "--tail", min=0, max=_MOST_LINES, help="Of each task only so many last lines.")
    ] = None,
    socket: Socket = None,
) -> None:
    """Print what a job wrote, from its first start on; followed to its end, exit code 1 unless it is done."""
    client = JobClient(socket)
    facts = client.job(name)
    written = JobLogs(Path(facts["log"]), Path(facts["logs"]), task, tail)
    while follow and not written.files and not facts["ended"]:
        _print_new(written, last=False)  # what begins from now on is shown from its first line on
        time.sleep(POLL_SECONDS)
        facts = client.job(name)
    if not written.files:
        raise JobRefused(_nothing_written(name, task, Path(facts["logs"])))
    while True:
        # Asked before it is read: what was written before the end is read after it.
        if follow:
            facts = client.job(name)
        ended = facts["ended"] if follow else True
        _print_new(written, last=ended)
        if ended:
            break
        time.sleep(POLL_SECONDS)
    if follow:
        check_done(facts)


def _print_new(written: JobLogs, *, last: bool) -> None:
    for line in written.read(last=last):
        sys.stdout.buffer.write(line)
    sys.stdout.flush()


def cancel(names: Names, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """End jobs for good."""
    chosen = list(dict.fromkeys(names))
    cancelled = []
    client = JobClient(socket)
    for name in chosen if len(chosen) > 1 else ():
        client.job(name)  # a name that is none ends nobody
    for name in chosen:
        cancelled.append(client.call("cancel", {"name": name}))
        if output.for_people:
            show(output, cancelled[-1], _answer_text("cancel", name, cancelled[-1]))
    if not output.for_people:
        show(output, cancelled[0] if len(chosen) == 1 else cancelled, "", partial(jobs_table, cancelled))


def suspend(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Hold a job: it writes a checkpoint, and what it had goes to others."""
    _act("suspend", name, socket, output)


def resume(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Let a held job be scheduled again."""
    _act("resume", name, socket, output)


def delete(names: Names, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Remove jobs that have ended, with their logs and checkpoints; their names are free again."""
    chosen = list(dict.fromkeys(names))
    deleted = []
    client = JobClient(socket)
    for name in chosen:
        # A name that is none, or of a job that has not ended, removes nobody.
        facts = client.job(name)
        if not facts["ended"] and len(chosen) > 1:
            raise JobRefused(f"{name} has not ended, so none is deleted; end it with `cluster-agent cancel {name}`")
    for name in chosen:
        deleted.append(client.call("delete", {"name": name}))
        if output.for_people:
            show(output, deleted[-1], f"{name} is deleted")
    if not output.for_people:
        show(output, deleted[0] if len(chosen) == 1 else deleted, "", partial(jobs_table, deleted))


def _act(method: str, name: str, socket: Path | None, output: Form) -> None:
    client = JobClient(socket)
    facts = client.call(method, {"name": name})
    show(output, facts, _answer_text(method, name, facts), partial(jobs_table, [facts]))


def _answer_text(method: str, name: str, facts: dict[str, Any]) -> str:
    waits = facts["state"] in ("queued", "suspended") and not (facts["held"] or facts["cancelling"])
    soon = ""
    if not facts["ended"]:
        soon = ", and is being cancelled" if facts["cancelling"] else ", and will be held" if facts["held"] else ""
        soon = "" if facts["state"] == "held" else soon
    verb = "has" if facts["state"] == "failed" else "is"
    line = f"{name} {verb} {facts['state']}{soon}"
    if method == "resume" and waits:
        line = f"{name} is no longer held, and waits for its turn"
    return line


def _polled_jobs(
    socket: Path | None, content: dict[str, Any], watch: bool, active: bool = False
) -> Iterator[list[Any]]:
    """The jobs now, and with `watch` whenever something but the time has changed."""
    client = JobClient(socket)
    before = None
    while True:
        found = client.call("jobs", content)["jobs"]
        found = [job for job in found if not (active and job["ended"])]
        if sys.stdout.isatty() or _still(found) != before:
            yield found
        if not watch:
            return
        before = _still(found)
        time.sleep(_WATCH_SECONDS)


def _still(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the jobs what does not change by itself."""
    moving = ("samples", "progress")
    return [
        {key: value for key, value in job.items() if key not in moving and not key.endswith("Seconds")} for job in jobs
    ]


def _nothing_written(name: str, task: str, folder: Path) -> str:
    if not task:
        return f"{name}: has written nothing yet; it has not been started"
    known = ", ".join(sorted(path.stem for path in folder.glob("*.log")))
    return f"{name}: has written nothing as {task}" + (f"; its tasks are {known}" if known else "")


_EXPLAINED_AGAIN_SECONDS = 2.0
"""Between two looks: each asks a cluster's API server for all that the answer needs."""


def explain(
    name: Name,
    socket: Socket = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Say why a job has what it has: what the policy believes it gains by more, what it waits for, and who decided.

    A job of this machine by its name; an ElasticTarget of a Kubernetes cluster as NAMESPACE/NAME, a
    TrainingJob as NAMESPACE/trainingjob/NAME. With --config of a simulated cluster a job of its newest decision, by
    the name in its log.
    """
    simulated = _simulated_state(config) if config is not None and "/" not in name else None
    if simulated is not None:
        from cluster_agent.recording.last_decision import explain_from_log  # noqa: PLC0415

        _answer(lambda: explain_from_log(name, simulated), explained, watch, output)
        return
    if "/" in name or config is not None or kubeconfig is not None or context is not None:
        # Loaded here: this takes a second, and jobs of this machine need nothing of it.
        from cluster_agent.jobs.cluster_access import opened  # noqa: PLC0415

        with opened(config, kubeconfig, context) as cluster:
            from cluster_agent.jobs.cluster_explaining import explain_target  # noqa: PLC0415
            from cluster_agent.jobs.cluster_explaining import explained as in_lines  # noqa: PLC0415

            _answer(lambda: explain_target(cluster, name), in_lines, watch, output)
        return
    client = JobClient(socket)
    _answer(lambda: client.call("explain", {"name": name}), explained, watch, output)


def _answer(
    ask: Callable[[], dict[str, Any]],
    view: Callable[[dict[str, Any], float], Group],
    watch: bool,
    output: Form,
) -> None:
    if watch:
        show_again(changing_polls(ask, _EXPLAINED_AGAIN_SECONDS), lambda facts: view(facts, time.time()), output)
    else:
        facts = ask()
        show(output, facts, lambda: view(facts, time.time()))


def _simulated_state(config: Path) -> Path | None:
    """The state directory of a simulated cluster's agent; None of another kind of cluster's."""
    from cluster_agent.backend_settings import SimulatedBackendSettings  # noqa: PLC0415  (brings pydantic)
    from cluster_agent.settings_file import read_settings  # noqa: PLC0415

    settings = read_settings(config)
    return settings.state_dir if isinstance(settings.backend, SimulatedBackendSettings) else None


def explained(facts: dict[str, Any], now_unix_seconds: float) -> Group:
    """The answer for people."""
    from rich.console import Group  # noqa: PLC0415  (a refusal needs nothing that draws)

    from foundation.tables import FactSheet  # noqa: PLC0415

    rows = [("job", facts["name"]), ("state", _state(facts, now_unix_seconds))]
    rows.append(("has", tasks(facts["workers"], facts["ps"])))
    rows.append(("waits for", facts["waitsFor"] or "nothing: it has what was decided"))
    decision = facts["decision"]
    if decision is not None:
        rows += decision_rows(decision, tasks(decision["workers"], decision["ps"]), now_unix_seconds)
    parts: list[Any] = [FactSheet("", rows)]
    if facts["steps"]:
        parts += ["", "What the policy believes that it gains, in the order in which it was weighed:", _steps(facts)]
    elif decision is not None:
        parts += ["", f"{decision['policy']} gives no gains for its grants."]
    if facts["others"]:
        parts += ["", "Others were given: " + ", ".join(_other(row) for row in facts["others"])]
    return Group(*parts)


def _state(facts: dict[str, Any], now_unix_seconds: float) -> str:
    """With for how long it is that; an agent of before, and a simulated one, do not say since when."""
    since = facts.get("stateSinceUnixSeconds")
    if since is None:
        return str(facts["state"])
    ago = clock_time(now_unix_seconds - since)
    return f"{facts['state']}, {ago} ago" if facts["ended"] else f"{facts['state']} for {ago}"


def _steps(facts: dict[str, Any]) -> FittedTable:
    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    servers = any(step["ps"] for step in facts["steps"])
    columns = (
        Column("workers"),
        *([Column("PSs")] if servers else []),
        Column("believed\nsamples/s", 1),
        Column("times\nas fast"),
        Column("score", 2),
        Column("after", 3, text=True),
        Column("became", text=True),
    )
    rows = [
        (
            str(step["workers"]),
            *([str(step["ps"])] if servers else []),
            f"{step['samplesPerSecond']:,.0f}",
            f"{step['timesAsFast']:.2f}" if step["timesAsFast"] else "–",
            f"{step['score']:.3g}",
            counted(step["rank"], "other") if step["rank"] else "none",
            "granted" if step["taken"] else "no room",
        )
        for step in facts["steps"]
    ]
    return FittedTable("", columns, rows)


def _other(row: dict[str, Any]) -> str:
    score = "" if row["score"] is None else f" (first step's score {row['score']:.3g})"
    return f"{row['name']} {row['workers']}+{row['ps']}{score}"
