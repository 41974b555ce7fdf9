"""The matrix's rows for `elastic-run`: a sound line of each of its commands, to a job that rests or to one that runs.

Nothing is started: a launcher says that it was, and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import elastic_runtime.cli
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.commands import requests
from elastic_runtime.launcher.supervisor import Supervisor

if TYPE_CHECKING:
    from command_table import Line, Place

PROGRAM = "elastic-run"
APP = elastic_runtime.cli.app
RUNS, RESTS, GOES = "runs", "rests", "goes"
"""The jobs' names."""
STARTED = "the job was started"


def _asked(*words: str) -> Line:
    return lambda place: [*words, "--folder", str(place.jobs), "-o", "json"]


def _sent(*words: str) -> Line:
    return lambda place: [RUNS, *words, "--no-wait", "--folder", str(place.jobs), "-o", "json"]


def _tls(place: Place) -> list[str]:
    certificate = str(place.folder / "cert.pem")
    return ["--certificate", certificate, "--key", str(place.folder / "key.pem"), "--ca", certificate]


SOUND: dict[str, Line] = {
    PROGRAM: lambda place: ["--folder", str(place.jobs), *_tls(place), "--joins-elsewhere", str(place.script)],
    f"{PROGRAM} resize": _sent("--ps", "1", "--workers", "2"),
    f"{PROGRAM} suspend": _sent(),
    f"{PROGRAM} resume": _asked(RESTS),
    f"{PROGRAM} status": _asked(RUNS),
    f"{PROGRAM} stop": _asked(RUNS),
    f"{PROGRAM} cancel": _asked(RUNS),
    f"{PROGRAM} logs": lambda place: [RUNS, "--rank", "0", "--tail", "1", "--folder", str(place.jobs)],
    f"{PROGRAM} delete": _asked(GOES),
    f"{PROGRAM} list": _asked(),
}
STARTS_NOTHING = [name for name in SOUND if name not in (PROGRAM, f"{PROGRAM} resume")]
ATTACKED_AT: dict[str, list[str]] = {
    "folder": [PROGRAM, f"{PROGRAM} status", f"{PROGRAM} list"],
    "output": [f"{PROGRAM} status"],
    "timeout": [f"{PROGRAM} status", f"{PROGRAM} suspend"],
    "request_id": [f"{PROGRAM} resize", f"{PROGRAM} resume"],
}
_NAMES = ("unknown", "parent", "half-a-source", "negative", "markup", "format")
ANY_ID = "whatever can be printed names a request"
NEW = "a folder that is made when it is needed"
PASSES: dict[str, str] = {
    "script=empty": "an empty script is one; it ends without having joined, which is said then",
    "names=unknown": "a job of that name may have been begun before, when --name was attacked",
    "folder=folder": "jobs can be kept in any folder",
    "folder=nowhere": NEW,
    "checkpoints=folder": "so can checkpoints",
    "checkpoints=nowhere": NEW,
    **{f"arguments={kind}": "the script's own" for kind in (*_NAMES, "empty", "terminal", "long", "newline", "blank")},
    **{f"request_id={kind}": ANY_ID for kind in (*_NAMES, "blank")},
}


def attacked_elsewhere(command: str, parameter: str) -> bool:
    """Whether an option is the very same as another command's, where it is attacked."""
    return command in SOUND and command not in ATTACKED_AT.get(parameter, [command])


def start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that looks after nothing, and none that is ended: the tests are the launcher of the job that runs."""

    def run(self: Supervisor, first_request: object = None) -> None:
        self._end_everything()
        raise ElasticError(STARTED)

    monkeypatch.setattr(Supervisor, "run", run)
    monkeypatch.setattr(requests, "_end_launcher", lambda *_: True)
