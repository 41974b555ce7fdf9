"""Measurements of the control plane: commands and decisions while many jobs wait, and an agent whose jobs run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.local_control.agent import Agent, agent, wait_for

_QUEUE_PACE_SECONDS = (2.0, 2.0)
_RUN_PACE_SECONDS = (30.0, 2.0)
"""As an agent has it unless it is told otherwise."""
_QUEUE_CORES_MILLI = 3000
_TASK = {"min": 1, "max": 4, "cpu": 1}
_SERVERS = {"min": 1, "max": 2, "cpu": "500m"}
_SMALL = "20m"
_WATCHERS, _WATCHED_SECONDS = 50, 10
_WARM_DECISIONS = 2
"""After which everything that is loaded late is loaded."""
Tell = Callable[[str], None]


def queue(
    folder: Path, policy: str, jobs: int, submissions: int, calls: int, decisions: int, tell: Tell
) -> dict[str, Any]:
    """What commands and decisions take while so many jobs wait.

    Args:
        folder: to work in.
        policy: that decides.
        jobs: in all.
        submissions: of these by real commands, the others by the socket.
        calls: so often each command is measured; none of them and no submissions for decisions alone.
        decisions: to wait for.
        tell: how far it is.
    """
    with agent(folder, policy, _QUEUE_CORES_MILLI, _QUEUE_PACE_SECONDS) as running:
        tell(f"{submissions} submissions")
        began = time.perf_counter()
        for number in range(submissions):
            name = f"command-{number}"
            running.command("submit", "--name", name, "--workers", "1-4", "--ps", "1-2", "--", "python", "elastic.py")
        submitted = time.perf_counter() - began
        for number in range(jobs - submissions):
            running.submit(f"job-{number}", "elastic", worker=_TASK, ps=_SERVERS, work={"epochs": 90})
        before = len(running.decisions())
        result: dict[str, Any] = {}
        if calls:
            result |= {"submissions_per_minute": round(60.0 * submissions / submitted)} if submissions else {}
            result |= _asked(running, calls, tell)
        tell("decisions")
        wait_for(lambda: len(running.decisions()) >= before + decisions, "not all decisions were taken")
        result["decisions"] = _decided(running.decisions()[before:], jobs)
        return result


def _asked(running: Agent, calls: int, tell: Tell) -> dict[str, Any]:
    """What `jobs` takes: as a command, whose Python has to start, and over the socket alone."""
    figures: dict[str, Any] = {}
    one = running.jobs()[-1]["name"]
    for name, words in (("table", ["jobs"]), ("json", ["jobs", "-o", "json"]), ("one", ["job", one, "-o", "json"])):
        tell(f"{calls} times {' '.join(words)}")
        took = [running.command(*words) for _ in range(calls)]
        cpu_seconds = median(cpu for _, cpu in took)
        figures[f"jobs_command_{name}"] = {**spread([wall for wall, _ in took]), "cpu_seconds": round(cpu_seconds, 4)}
    tell("the socket")
    figures["jobs_socket"] = spread([_timed(running.jobs) for _ in range(5 * calls)])
    tell(f"{_WATCHERS} that watch")
    figures["watched"] = _watched(running)
    figures["python_start"] = spread([_timed(_python) for _ in range(calls)])
    return figures


def _watched(running: Agent) -> dict[str, float]:
    """What the agent uses, and how long its answers take, while many list all jobs every second."""

    def watch(number: int) -> list[float]:
        time.sleep(number / _WATCHERS)
        took = []
        for _ in range(_WATCHED_SECONDS):
            took.append(_timed(running.jobs))
            time.sleep(max(0.0, 1.0 - took[-1]))
        return took

    used, began = running.cpu_seconds(), time.monotonic()
    with ThreadPoolExecutor(_WATCHERS) as pool:
        took = [seconds for found in pool.map(watch, range(_WATCHERS)) for seconds in found]
    share = (running.cpu_seconds() - used) / (time.monotonic() - began)
    return {"clients": _WATCHERS, **spread(took), "agent_cpu_share": round(share, 3)}


def _decided(lines: Sequence[dict[str, Any]], jobs: int) -> dict[str, Any]:
    """Of decisions about nearly all jobs."""
    whole = [line for line in lines if len(line["state"]["jobs"]) >= 0.9 * jobs]
    late = sum("deadline" in line["interventions"] for line in whole)
    seconds = [float(line["decide_seconds"]) for line in whole]
    return {"count": len(whole), "late": late, **spread(seconds)} if whole else {"count": 0, "late": 0}


def running_jobs(folder: Path, policy: str, fixed: int, elastic: int, seconds: float, tell: Tell) -> dict[str, Any]:
    """What an agent uses while so many jobs run and nobody asks for anything."""
    with agent(folder, policy, 100 * (fixed + elastic), _RUN_PACE_SECONDS) as running:
        small = {"min": 1, "max": 1, "cpu": _SMALL}
        for number in range(elastic):
            running.submit(f"elastic-{number}", "elastic", worker=small, ps=small)
        for number in range(fixed):
            running.submit(f"fixed-{number}", "fixed", worker={"cpu": _SMALL})
        tell(f"{fixed + elastic} jobs start")
        wait_for(
            lambda: sum(job["state"] == "running" for job in running.jobs()) == fixed + elastic, "not all jobs run"
        )
        before = len(running.decisions())
        if elastic:
            wait_for(lambda: len(running.decisions()) >= before + _WARM_DECISIONS, "no decisions are taken")
        tell(f"{seconds:g} s of quiet")
        used, began, decided = running.cpu_seconds(), time.monotonic(), len(running.decisions())
        time.sleep(seconds)
        share = (running.cpu_seconds() - used) / (time.monotonic() - began)
        decisions = len(running.decisions()) - decided
    return {"fixed": fixed, "elastic": elastic, "decisions": decisions, "agent_cpu_share": round(share, 4)}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """The median, and the 99th percentile."""
    if len(seconds) < 2:
        return {"p50_seconds": round(seconds[0], 4), "p99_seconds": round(seconds[0], 4)}
    hundredths = quantiles(seconds, n=100, method="inclusive")
    return {"p50_seconds": round(hundredths[49], 4), "p99_seconds": round(hundredths[98], 4)}


def _timed(does: Callable[[], object]) -> float:
    began = time.perf_counter()
    does()
    return time.perf_counter() - began


def _python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)
