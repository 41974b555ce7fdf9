"""A decision log's lines, and cluster states and decisions in them as JSON values, exactly.

What is logged can be decided upon again, bit for bit: floats are written by `repr`, integers stay integers, and a
state's digest is taken over canonical JSON.

A line is one JSON object that ends with the CRC-32 of everything before it. One without a seal was left torn by a dying
agent: the next agent goes on with a checkpoint, so a torn line may only stand at the end of a file or before a
checkpoint. Anything else is damage, and named by its number.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from foundation.text import parse_json
from policy_net.domain import (
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    JobKind,
    Moves,
    Node,
    Placement,
    Progress,
    Resources,
    Share,
)
from policy_net.errors import BadInput

JsonObject = dict[str, Any]


def canonical_json(value: Mapping[str, Any]) -> str:
    """The one text of a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of_json(value: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON, hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def encode_state(state: ClusterState) -> JsonObject:
    """A state as JSON values; the placement only where the state has one."""
    fields: JsonObject = {
        "time_seconds": state.time_seconds,
        "slot_seconds": state.slot_seconds,
        "capacity_mode": state.capacity_mode.value,
        "nodes": [[node.node_id, node.capacity.cpu_milli, node.capacity.gpu, node.gpu_type] for node in state.nodes],
        "jobs": [_encode_job(job) for job in state.jobs],
    }
    if state.placement is not None:
        fields["placement"] = encode_placement(state.placement)
    return fields


def decode_state(value: Mapping[str, Any]) -> ClusterState:
    """The state that `encode_state` was given.

    Raises:
        KeyError, ValueError, TypeError: the value was not written by `encode_state`.
    """
    return ClusterState(
        time_seconds=value["time_seconds"],
        nodes=tuple(Node(name, Resources(cpu_milli, gpu), kind) for name, cpu_milli, gpu, kind in value["nodes"]),
        jobs=tuple(_decode_job(job) for job in value["jobs"]),
        slot_seconds=value["slot_seconds"],
        capacity_mode=CapacityMode(value["capacity_mode"]),
        placement=decode_placement(value["placement"]) if "placement" in value else None,
    )


def encode_placement(placement: Placement) -> JsonObject:
    """Where tasks lie, as JSON values: by job the nodes, each with its workers and parameter servers."""
    return {
        job_id: [[share.node_id, share.allocation.workers, share.allocation.ps] for share in shares]
        for job_id, shares in placement.items()
    }


def decode_placement(value: Mapping[str, Any]) -> dict[str, tuple[Share, ...]]:
    """What `encode_placement` was given.

    Raises:
        ValueError, TypeError: the value was not written by `encode_placement`.
    """
    return {
        job_id: tuple(Share(node_id, Allocation(workers, ps)) for node_id, workers, ps in shares)
        for job_id, shares in value.items()
    }


def _encode_job(job: Job) -> JsonObject:
    """A job as JSON values; when it moves only where that is not freely."""
    fields = {
        "job_id": job.job_id,
        "job_type": job.job_type,
        "submit_time_seconds": job.submit_time_seconds,
        "worker_demand": [job.worker_demand.cpu_milli, job.worker_demand.gpu],
        "ps_demand": [job.ps_demand.cpu_milli, job.ps_demand.gpu],
        "samples_per_epoch": job.samples_per_epoch,
        "total_epochs": job.total_epochs,
        "remaining_epochs": job.remaining_epochs,
        "requested": [job.requested.workers, job.requested.ps],
        "max_workers": job.max_workers,
        "max_ps": job.max_ps,
        "run_seconds": job.run_seconds,
        "current": [job.current.workers, job.current.ps],
        "kind": job.kind.value,
        "min_workers": job.min_workers,
        "min_ps": job.min_ps,
        "work_known": job.work_known,
    }
    return fields if job.moves is Moves.FREELY else {**fields, "moves": job.moves.value}


def _decode_job(value: Mapping[str, Any]) -> Job:
    return Job(
        job_id=value["job_id"],
        job_type=value["job_type"],
        submit_time_seconds=value["submit_time_seconds"],
        worker_demand=Resources(*value["worker_demand"]),
        ps_demand=Resources(*value["ps_demand"]),
        samples_per_epoch=value["samples_per_epoch"],
        total_epochs=value["total_epochs"],
        remaining_epochs=value["remaining_epochs"],
        requested=Allocation(*value["requested"]),
        max_workers=value["max_workers"],
        max_ps=value["max_ps"],
        run_seconds=value["run_seconds"],
        current=Allocation(*value["current"]),
        kind=JobKind(value["kind"]),
        min_workers=value["min_workers"],
        min_ps=value["min_ps"],
        work_known=value["work_known"],
        moves=Moves(value.get("moves", Moves.FREELY)),
    )


def encode_decision(decision: Decision) -> JsonObject:
    """A decision as JSON values; the placement is null where the backend chose it."""
    placement = decision.placement
    return {
        "allocation": {job_id: [grant.workers, grant.ps] for job_id, grant in decision.allocation.items()},
        "placement": None if placement is None else encode_placement(placement),
        "reasons": list(decision.reasons),
    }


def decode_decision(value: Mapping[str, Any]) -> Decision:
    """The decision that `encode_decision` was given.

    Raises:
        KeyError, ValueError, TypeError: the value was not written by `encode_decision`.
    """
    placement = value["placement"]
    return Decision(
        allocation={job_id: Allocation(*grant) for job_id, grant in value["allocation"].items()},
        placement=None if placement is None else decode_placement(placement),
        reasons=tuple(value["reasons"]),
    )


def encode_progress(entry: Progress) -> list[Any]:
    """What a job did, as a row of JSON values; where its workers lay stands last, where that is known."""
    row = [
        entry.job_id,
        entry.job_type,
        entry.allocation.workers,
        entry.allocation.ps,
        _figure(entry.seconds),
        _figure(entry.samples),
        _figure(entry.epochs),
        _figure(entry.remaining_epochs),
        entry.finished,
        _figure(entry.paused_seconds),
    ]
    return [*row, [list(place) for place in entry.places]] if entry.places else row


def _figure(value: float) -> float | str:
    """JSON has no NaN and no infinity, which a faulty report may hold: they are written as words."""
    return value if math.isfinite(value) else str(value)


def decode_progress(row: Sequence[Any]) -> Progress:
    """What `encode_progress` was given.

    Raises:
        ValueError, TypeError: the row was not written by `encode_progress`.
    """
    job_id, job_type, workers, ps, seconds, samples, epochs, remaining_epochs, finished, paused_seconds, *places = row
    if len(places) > 1:
        raise ValueError(f"a row of {len(row)} values: progress has 10, or 11 with its places")
    return Progress(
        job_id,
        job_type,
        Allocation(workers, ps),
        _number(seconds),
        _number(samples),
        _number(epochs),
        _number(remaining_epochs),
        finished,
        _number(paused_seconds),
        tuple((str(gpu_type), int(count)) for gpu_type, count in places[0]) if places else (),
    )


def _number(figure: float | str) -> float:
    return float(figure) if isinstance(figure, str) else figure


CHECKPOINT_START = '{"checkpoint":'
DECISION_START = '{"state":'
LONGEST_LINE_BYTES = 64_000_000
"""Ten thousand jobs make ten megabytes."""
_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}$')
_SEAL_BYTES = len(b',"crc32":"00000000"}')


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log, counted from 1, and the object in it without its seal; None of a line that was cut short."""

    number: int
    content: JsonObject | None

    @property
    def is_checkpoint(self) -> bool:
        """Whether it says how things stood, and not what was decided."""
        return self.content is not None and "checkpoint" in self.content


def sealed(text: str) -> bytes:
    """A JSON object's text with its seal, and the line's end."""
    body = text[:-1].encode()
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def numbered_lines(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """A file's lines and their numbers, from 1, without ever holding more than one that any log could have.

    Raises:
        BadInput: a line is longer than that.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(raw) > LONGEST_LINE_BYTES:
            raise BadInput(f"{path}, line {number}: longer than {LONGEST_LINE_BYTES} bytes; this is no decision log")
        yield number, raw


def read_lines(path: Path) -> Iterator[LogLine]:
    """The lines of one file, in order, one in memory at a time.

    Raises:
        BadInput: the file cannot be read, or a line was changed or is something else than a log's; it names the line.
    """
    torn: int | None = None
    try:
        with path.open("rb") as stream:
            for number, raw in numbered_lines(stream, path):
                line = _parse(path, number, raw)
                if torn is not None and not line.is_checkpoint:
                    raise BadInput(f"{path}, line {torn}: damaged in the middle of the log; restore it from a copy")
                torn = number if line.content is None else None
                yield line
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error


def _parse(path: Path, number: int, raw: bytes) -> LogLine:
    text = raw.removesuffix(b"\n")
    seal = _SEAL.search(text[-_SEAL_BYTES:])
    if seal is None:
        return _unsealed(path, number, text)
    body = text[:-_SEAL_BYTES]
    if zlib.crc32(body) != int(seal[1], 16):
        raise BadInput(f"{path}, line {number}: damaged (its checksum is another); restore it from a copy")
    try:
        content = parse_json(body + b"}")
    except ValueError as error:
        raise BadInput(f"{path}, line {number}: no JSON under a good checksum; no agent wrote this") from error
    return LogLine(number, content)


def _unsealed(path: Path, number: int, text: bytes) -> LogLine:
    try:
        parse_json(text)
    except ValueError:
        starts = (CHECKPOINT_START.encode(), DECISION_START.encode())
        if any(text.startswith(start) or start.startswith(text) for start in starts):
            return LogLine(number, None)
        raise BadInput(f"{path}, line {number}: damaged, or no decision log; restore it from a copy") from None
    raise BadInput(f"{path}, line {number}: has no checksum; an earlier version wrote it, or it is no decision log")
