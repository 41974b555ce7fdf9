"""What is known of a job: from its coordinator if it runs, else from its folder."""

from __future__ import annotations

from typing import Any

from elastic_runtime.errors import BadInput, CoordinatorUnreachable
from elastic_runtime.launcher.commands.options import client_of
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_lock import holder_of
from elastic_runtime.launcher.job_spec import spec_of
from elastic_runtime.launcher.job_state import read_state
from elastic_runtime.launcher.status_record import status_record
from elastic_runtime.plan import Phase

STOPPED = "stopped"
"""Stands for the phase of a job that was training when its processes ended; `resume` goes on with it."""
_OVER = {Phase.SUSPENDED.value, Phase.FINISHED.value, Phase.FAILED.value}


def live_facts(folder: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """What the job's coordinator says.

    Raises:
        CoordinatorUnreachable: it does not answer.
        BadInput: nothing of the job runs.
    """
    with client_of(folder, timeout_seconds) as client:
        status = client.status()
    return {**status_record(status), **_place(folder, holder_of(folder.path))}


def job_facts(folder: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """What is known of a job, whether it runs or not.

    Raises:
        CoordinatorUnreachable: it runs, but does not answer.
    """
    launcher = holder_of(folder.path)
    if launcher is None:
        return resting_facts(folder)
    try:
        return live_facts(folder, timeout_seconds)
    except CoordinatorUnreachable:
        # The coordinator of a job that is over ends before its launcher.
        facts = resting_facts(folder)
        if facts["phase"] not in (Phase.FINISHED.value, Phase.FAILED.value):
            raise
        return {**facts, "launcher": launcher}


def resting_facts(folder: JobFolder) -> dict[str, Any]:
    """What the job's folder says; tasks and speed are of the past, and left out."""
    state = read_state(folder)
    phase = state.get("phase", STOPPED)
    facts = {
        **state,
        "job": folder.name,
        "phase": phase if phase in _OVER else STOPPED,
        "size": {"ps": 0, "workers": 0},
        "tasks": [],
        "samples_per_second": 0.0,
    }
    return {**facts, **_place(folder, None)}


def _place(folder: JobFolder, launcher: int | None) -> dict[str, Any]:
    try:
        script = str(spec_of(folder.record(), folder.record_file).script)
    except BadInput:
        script = None
    return {"launcher": launcher, "script": script, "folder": str(folder.path)}
