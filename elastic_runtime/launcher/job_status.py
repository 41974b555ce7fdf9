"""Status of a job: from its coordinator if it runs, else from its folder, where its launcher writes it every so often.

It is told as programs read it, by `elastic-run status -o json`: plain JSON values; sizes are `{"ps": N, "workers": M}`.
What calls a coordinator, and what checks a job's record, is loaded where a job is there to be asked.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from elastic_runtime.control.credentials import ClientCredentials, check_coordinator, follow_ca
from elastic_runtime.control.messages import JobStatus, RequestState, Size, TaskStatus
from elastic_runtime.errors import BadInput, CoordinatorUnreachable
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, read_json, resume_command, write_json
from elastic_runtime.protocol.plan import ENDED, OVER, JobPhase
from foundation.python310 import StrEnum

if TYPE_CHECKING:
    from elastic_runtime.control.client import ControlClient
    from elastic_runtime.launcher.job_spec import JobSpec

STOPPED = "stopped"
"""Stands for the phase of a job that was training when its processes ended; `resume` goes on with it."""


def job_facts(folder: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """Facts of a job, whether it runs or not.

    Raises:
        CoordinatorUnreachable: it runs, but does not answer.
    """
    launcher = holder_of(folder.path)
    if launcher is None:
        return resting_facts(folder)
    try:
        with client_of(folder, timeout_seconds) as client:
            status = client.status()
        return {**status_record(status), **_place(folder, holder_of(folder.path))}
    except CoordinatorUnreachable:
        # The coordinator of a job that is over ends before its launcher.
        facts = resting_facts(folder)
        if facts["phase"] not in ENDED:
            raise
        return {**facts, "launcher": launcher}


def resting_facts(folder: JobFolder) -> dict[str, Any]:
    """What the job's folder says; tasks and speed are of the past, and left out."""
    state = read_state(folder)
    phase = state.get("phase", STOPPED)
    facts = {
        **state,
        "job": folder.name,
        "phase": phase if phase in OVER else STOPPED,
        "size": {"ps": 0, "workers": 0},
        "tasks": [],
        "samples_per_second": 0.0,
    }
    return {**facts, **_place(folder, None)}


def client_of(folder: JobFolder, timeout_seconds: float) -> ControlClient:
    """Client of a job that runs.

    Raises:
        BadInput: nothing of it runs.
        CoordinatorUnreachable: its launcher lives, its coordinator does not listen yet, or again.
    """
    if holder_of(folder.path) is None:
        check_not_ended(folder)
        raise BadInput(f"{folder.name} is not running; `{resume_command(folder, os.environ)}` goes on with it")
    found = read_json(folder.address_file) or {}
    try:
        address = check_coordinator(str(found.get("address", "")))
    except BadInput as error:
        raise CoordinatorUnreachable(
            f"{folder.name}: its coordinator is being started; try again in some seconds"
        ) from error
    from elastic_runtime.control.client import ControlClient  # noqa: PLC0415
    from elastic_runtime.launcher.job_spec import spec_of  # noqa: PLC0415

    spec = spec_of(folder.record(), folder.record_file)
    return ControlClient(address, folder.name, credentials_of(folder, spec), timeout_seconds)


def check_not_ended(folder: JobFolder) -> None:
    """Refuse to ask a job that has ended; its coordinator ends before its launcher does.

    Raises:
        BadInput: it has.
    """
    phase = read_state(folder).get("phase")
    if phase in ENDED:
        raise BadInput(f"{folder.name} has {phase}; nothing of it runs that could be asked")


def credentials_of(job: JobFolder, spec: JobSpec) -> ClientCredentials:
    """The job's token, and its certificate authority if it speaks TLS.

    Raises:
        BadInput: one of the files cannot be read.
    """
    ca = None if spec.ca is None else follow_ca(spec.ca)
    return ClientCredentials(job.token(), insecure_allowed=spec.insecure, ca=ca)


def status_record(status: JobStatus) -> dict[str, Any]:
    """A coordinator's answer as plain JSON values."""
    return {field.name: _plain(getattr(status, field.name)) for field in fields(status)}


def _plain(value: Any) -> Any:
    if isinstance(value, Size):
        return {"ps": value.servers, "workers": value.workers}
    if isinstance(value, TaskStatus | RequestState):  # a status does not say which victims a request had
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.name != "victims"}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, StrEnum) else value


def read_state(folder: JobFolder) -> dict[str, Any]:
    """Facts of a job when its launcher last looked, as `status_record` says them; empty if it never did.

    What is not as it was written, by another version or a failing disk, is left out.
    """
    found = read_json(folder.state_file) or {}
    usual = status_record(JobStatus(folder.name, JobPhase.STARTING, requests=(RequestState("", ""),), loss=0.0))
    (request,) = usual["requests"]
    state = {name: found[name] for name in usual if name in found and _is_like(found[name], usual[name])}
    if "requests" in state:
        state["requests"] = [row for row in state["requests"] if _is_like(row, request)]
    return state


def write_state(folder: JobFolder, status: JobStatus) -> None:
    """Replace a job's `state.json`. A full disk leaves the one before: nothing depends on it."""
    with contextlib.suppress(OSError):
        write_json(folder.state_file, status_record(status))


def _place(folder: JobFolder, launcher: int | None) -> dict[str, Any]:
    from elastic_runtime.launcher.job_spec import spec_of  # noqa: PLC0415

    try:
        script = str(spec_of(folder.record(), folder.record_file).script)
    except BadInput:
        script = None
    return {"launcher": launcher, "script": script, "folder": str(folder.path)}


def _is_like(value: object, usual: object) -> bool:
    if isinstance(usual, dict):
        return isinstance(value, dict) and all(name in value and _is_like(value[name], usual[name]) for name in usual)
    if isinstance(usual, int | float):
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # no NaN, nor what no float can be
    return isinstance(value, type(usual))
