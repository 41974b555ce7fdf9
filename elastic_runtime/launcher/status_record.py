"""A job's status as programs read it: the JSON of `elastic-run status -o json`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from elastic_runtime.control.messages import JobStatus, RequestState, Size, TaskStatus


def status_record(status: JobStatus) -> dict[str, Any]:
    """Plain JSON values; sizes are `{"ps": N, "workers": M}`."""
    record = {field.name: getattr(status, field.name) for field in fields(status)}
    record["phase"] = status.phase.value
    record["size"] = _size(status.size)
    record["target"] = _size(status.target)
    record["tasks"] = [_task(task) for task in status.tasks]
    record["requests"] = [_request(request) for request in status.requests]
    record["wanted"] = list(status.wanted)
    record["leaving"] = list(status.leaving)
    return record


def _size(size: Size) -> dict[str, int]:
    return {"ps": size.servers, "workers": size.workers}


def _task(task: TaskStatus) -> dict[str, Any]:
    record = {field.name: getattr(task, field.name) for field in fields(task)}
    record["role"] = task.role.value
    return record


def _request(request: RequestState) -> dict[str, Any]:
    """A status does not say which victims a request had."""
    record = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "victims"}
    record.update(state=request.state.value, mode=request.mode.value, target=_size(request.target))
    return record
