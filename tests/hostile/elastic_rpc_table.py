"""The matrix's rows for an elastic job's coordinator: a sound request of every method, and what passes all the same.

A new method needs one line here, or `test_every_method_has_a_row` fails; its fields are attacked by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bad_fields import STRINGS
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hostile_job import INCARNATION, LAYOUT, terms

from elastic_runtime.generated import elastic_pb2 as pb

SERVICES = {name: one for name, one in pb.DESCRIPTOR.services_by_name.items() if name != "Sessions"}
"""What is sealed; how sessions are opened has tests of its own."""
SIZE = pb.Size(servers=1, workers=2)


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        fields: of a sound request.
        passes: attacks that are taken, as `field` or `field=kind`.
        asynchronous: the job that is asked leases its samples.
    """

    fields: Mapping[str, Any]
    passes: frozenset[str] = frozenset()
    asynchronous: bool = False


PRINTABLE = ("parent-path", "absolute-path", "markup", "rich-markup", "sql", "format", "upper")
ANY_ID = frozenset(f"request_id={kind}" for kind in PRINTABLE)
NO_LEASE = frozenset({"epoch=zero"})
FIGURES = ("samples_per_second", "step_seconds", "stall_seconds")
COUNTED = (
    *("view", "generation", "step", "accepted", "refused", "arrived", "samples"),
    *("bytes_sent", "bytes_received", "owned_bytes", "moved_bytes"),
)


def _worker(**fields: Any) -> dict[str, Any]:
    return {"task": "worker-0", "incarnation": INCARNATION, **fields}


ROWS: dict[str, Row] = {
    "Resize": Row(
        {"request_id": "r", "target": SIZE, "victims": ["worker-1"], "mode": pb.RESIZE_MODE_ROLLING},
        ANY_ID | NO_LEASE | {"target"},
    ),
    "Suspend": Row({"request_id": "r"}, ANY_ID | NO_LEASE),
    "Resume": Row({"request_id": "r", "target": SIZE}, ANY_ID | NO_LEASE | {"target"}),
    "Status": Row({}),
    "Register": Row(_worker(role=pb.ROLE_WORKER, address_json="{}", layout_json=LAYOUT, training_json=terms())),
    "Follow": Row(_worker(), frozenset({"incarnation"})),
    "Report": Row(
        _worker(generation=1, view=1, shards=[pb.Shard(name="a", sha256="a" * 64)], suspects=["ps-0"]),
        frozenset(
            {
                "ready",
                "initialised",
                "finished",
                "has_loss",
                "bad_input",
                "left",
                "draining",
                "signalled",
                "loss",
                "staleness",
            }
        )
        | {"incarnation"}  # answered with the word that it is expelled
        | {"shards[0].name=upper"}
        | {f"{name}=zero" for name in COUNTED}
        | {f"shards[0].{name}=zero" for name in ("step", "size_bytes", "change")}
        | {f"{name}={kind}" for name in FIGURES for kind in ("largest", "denormal")}
        | {f"{name}={kind}" for name in ("failure", "damage") for kind in STRINGS if kind != "larger-than-a-message"},
    ),
    "Lease": Row(
        # Who lends nothing gets nothing back; of another incarnation or generation, no leases.
        _worker(generation=1, done=[1], batches=1),
        frozenset({"incarnation", "generation", "done", "batches=zero"}),
        asynchronous=True,
    ),
    "TaskEnded": Row(
        {"task": "worker-0", "exit_code": 0, "last_line": "done"},
        NO_LEASE | {"exit_code"} | {f"last_line={kind}" for kind in STRINGS if kind != "larger-than-a-message"},
    ),
}


@dataclass(frozen=True)
class Method:
    """How a method is called."""

    path: str
    request: type[Message]
    reply: type[Message]
    stream: bool


def methods() -> dict[str, Method]:
    """Every method of every service."""
    return {
        method.name: Method(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            method.server_streaming,
        )
        for service in SERVICES.values()
        for method in service.methods
    }


def sound_request(method: str) -> Message:
    """A request as a sound caller would make it."""
    return methods()[method].request(**ROWS[method].fields)


def passes(method: str, where: str, kind: str) -> bool:
    """Whether an attack may be taken as if it were none."""
    return bool({where, f"{where}={kind}"} & ROWS[method].passes)
