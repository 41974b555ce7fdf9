"""Notifications of jobs' ends: a command is run, or a URL is sent a line of JSON, once, beside the thread that decides.

That one has begun is on disk before it does. An agent that ends meanwhile leaves it to the next one to say that nobody
knows how it went: none is sent twice.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from cluster_agent.backends.local.job_file import is_url
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord, Notice
from cluster_agent.backends.local.launchers import launcher_log
from cluster_agent.errors import StateDamaged
from foundation.files import open_ordinary
from foundation.text import plain_line

_log = structlog.get_logger()
_MOST_AT_ONCE = 4
DEADLINE_SECONDS = 30.0
"""For a command, or the answer to a request; then it is killed."""
_CLOSE_SECONDS = 5.0
"""That an agent which ends waits for what is under way."""
_RETRY_SECONDS = 5.0
"""Between two tries to write down how it went, while the disk is full."""
_LAST_BYTES = 4096

_POST = """
import sys, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None
url, body = sys.stdin.buffer.read().split(b"\\n", 1)
request = urllib.request.Request(url.decode(), body, {"Content-Type": "application/json"})
try: urllib.request.build_opener(Stay).open(request, timeout=30).close()
except Exception as error: sys.exit(str(error))
"""
"""A process of its own, since nothing else ends a request that takes its time over each byte. The URL, which may have a
secret, is in none of its arguments; a redirection would lose the body."""
_EXIT_CODE = re.compile(r"ended with exit code ([0-9]+)")
_SIGNAL = re.compile(r"was ended by (SIG[A-Z0-9]+)")


class Notifications:
    """What jobs' ends are told by; `jobs` is the folder of their logs, `environment` is inherited by commands."""

    def __init__(
        self,
        table: JobTable,
        jobs: Path,
        environment: Mapping[str, str],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._table = table
        self._jobs = jobs
        self._environment = environment
        self._deadline_seconds = deadline_seconds
        self._closing = threading.Event()
        self._under_way: dict[str, threading.Thread] = {}
        self._given_up: set[str] = set()

    def poll(self) -> None:
        """Begin what is due, a few at once; nothing is waited for."""
        self._under_way = {name: thread for name, thread in self._under_way.items() if thread.is_alive()}
        for record in self._table.to_notify:
            if len(self._under_way) >= _MOST_AT_ONCE or self._closing.is_set():
                return
            if record.name not in self._under_way and record.name not in self._given_up:
                thread = threading.Thread(target=self._run, args=(record,), name="notification", daemon=True)
                self._under_way[record.name] = thread
                thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing is due or under way."""
        return all(record.name in self._given_up for record in self._table.to_notify)

    def close(self) -> None:
        """Begin nothing more; what is under way has a few seconds, and is not ended."""
        self._closing.set()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._under_way.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, record: LocalJobRecord) -> None:
        try:
            if record.notice is Notice.BEGUN:
                line = "the agent ended while it was sent; it is not sent again"
            elif self._note(record, notice=Notice.BEGUN):
                line = self._send(record)
            else:
                return
            if line:
                _log.warning("notification-failed", job=record.name, line=line)
            else:
                _log.info("notification-sent", job=record.name)
            self._note(record, notice=Notice.OVER, notice_failure=line)
        except (KeyError, StateDamaged) as error:  # somebody has damaged its record, or taken it away
            self._given_up.add(record.name)
            _log.warning("notification-failed", job=record.name, line=plain_line(str(error)))

    def _note(self, record: LocalJobRecord, **values: object) -> bool:
        """Write down how far it is, however long the disk is full; False if the agent ends meanwhile."""
        while True:
            try:
                self._table.change(record.name, **values)
            except OSError as error:
                _log.warning("notification-not-noted", job=record.name, line=plain_line(str(error)))
                if self._closing.wait(_RETRY_SECONDS):
                    return False
            else:
                return True

    def _send(self, record: LocalJobRecord) -> str:
        """Send it, within its deadline; why that failed, in a line."""
        notify, facts = record.file.notify or "", end_facts(record)
        environment = {**self._environment, **record.file.env}
        if is_url(notify):
            command, folder, environment = [sys.executable, "-I", "-c", _POST], self._jobs, dict(self._environment)
            said = f"{notify}\n{json.dumps(facts)}".encode()
        else:
            command, folder, said = shlex.split(notify), record.file.workdir or self._jobs, b""
            code = facts["exitCode"]
            environment |= {"JOB_NAME": record.name, "JOB_STATE": record.state.value, "JOB_NOTE": record.failure}
            environment["JOB_EXIT_CODE"] = "" if code is None else str(code)
        path = self._jobs / f"{record.name}.launcher.log"
        try:
            self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
            with launcher_log(path) as log:
                before = os.fstat(log).st_size
                process = subprocess.Popen(  # noqa: S603  (the user's own command, or ours)
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            return plain_line(f"it cannot be started ({error})")
        try:
            process.communicate(said, self._deadline_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"it took longer than {self._deadline_seconds:.0f} seconds, and was killed"
        if process.returncode == 0:
            return ""
        words = _last_line(path, before)
        if is_url(notify):
            return words or "its answer was none"
        return f"exit code {process.returncode}" + (f": {words}" if words else "")


def end_facts(record: LocalJobRecord) -> dict[str, object]:
    """How a job ended, as a URL is told; `text` is the line of it that chats show."""
    how = f"{record.name} {record.state.ended_words}" + (f": {record.failure}" if record.failure else "")
    return {
        "name": record.name,
        "state": record.state.value,
        "exitCode": _exit_code(record),
        "note": record.failure,
        "text": how,
    }


def _exit_code(record: LocalJobRecord) -> int | None:
    """Of the script, of a signal as shells have it; None where it was not its script that ended the job."""
    if record.state is JobState.DONE:
        return 0
    if found := _EXIT_CODE.search(record.failure):
        return int(found[1])
    found = _SIGNAL.search(record.failure)
    return 128 + signal.Signals[found[1]] if found and found[1] in signal.Signals.__members__ else None


def _last_line(path: Path, start: int) -> str:
    """The last line that was written into a log from a place on."""
    try:
        with open(open_ordinary(path), "rb") as file:  # noqa: PTH123  (it is open already)
            file.seek(max(start, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
    except OSError:  # it was removed: its words are gone
        return ""
    return plain_line(lines[-1])[:200] if lines else ""
