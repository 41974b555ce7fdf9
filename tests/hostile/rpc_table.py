"""The matrix's rows: every method of every service, who may call it and what a sound request holds.

A new method needs one line here, or `test_every_method_has_a_row` fails. Its fields are attacked by themselves;
`passes` names those that are taken as they come, whatever is in them (a figure that is only shown, say), as `field` or
`field=kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from bad_fields import NUMBERS
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from learner_makers import SPEC, vector

from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.identity_file import new_key, signing_request

GOOD_CLUSTER = "north"
SERVICES = fleet_pb2.DESCRIPTOR.services_by_name


class Caller(StrEnum):
    """Whose certificate a method wants."""

    CLUSTER = "cluster"
    ADMIN = "admin"
    EITHER = "either"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        fields: of a sound request, beside `cluster` and `incarnation`, which are filled in.
        passes: attacks that are taken, as `field` or `field=kind`.
        changes: a sound request changes what the learner keeps.
    """

    caller: Caller
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    passes: frozenset[str] = frozenset()
    changes: bool = False


def _push() -> dict[str, Any]:
    return {
        "sequence": 2**40,
        "spec_digest": SPEC.digest,
        "gradient": vector(7).tobytes(),
        "samples": 20,
        "effective_samples": 12.5,
        "statistics": {"entropy": 0.5},
    }


ROLLOUT_FIGURES = ("rollout", "beside_version")
SHOWN_FIGURES = ("decisions", "jobs_running", "jobs_waiting", "jobs_done", "jobs_total", "acting_version")
BEAT_PASSES = frozenset(
    {
        "status.baseline_policy=empty",
        "status.refused_version=zero",
        "status.refused_reason=empty",
        "incarnation",  # answered with the word to register again
        *(f"status.{name}" for name in (*SHOWN_FIGURES, *ROLLOUT_FIGURES, "learning_step", "finished", "simulated")),
        "status.rollout_role=empty",
        *(f"status.{name}=denormal" for name in ("time_seconds", "avg_jct_seconds", "baseline_jct_seconds")),
        *(f"status.guard_interventions=value-{kind}" for kind in NUMBERS),
    }
)
REGISTER_PASSES = frozenset(
    f"job_types=item-{kind}"  # a type's name is its users'; it is kept as it is, and escaped wherever it is shown
    for kind in ("parent-path", "absolute-path", "markup", "rich-markup", "sql", "format", "upper")
) | {"spec_digest=empty"}  # the agent takes what the learner has
SEEN = fleet_pb2.TypeStatistics(job_type="vgg-16", kind="ps", ps=[1], workers=[2], mean_log_speed=[3.0], count=[4])
REQUEST = signing_request(new_key(), GOOD_CLUSTER)

KIND = fleet_pb2.KindSketch(
    kind="ps", share=1.0, run_seconds=[60.0, 120.0, 240.0, 480.0, 960.0], workers=[1, 1, 2, 4, 8], ps=[1, 1, 1, 2, 2]
)
SKETCH = fleet_pb2.WorkloadSketch(
    nodes=4, gpus_per_node=2, cpus_per_node=8, jobs_a_day=40.0, day_shares=[0.125] * 8, kinds=[KIND]
)
SKETCH_PASSES: frozenset[str] = frozenset()
BLOCK = fleet_pb2.SwitchbackBlock(number=3, jobs=4.0, usual_jobs=4.0, decisions=9, begin_seconds=1.0, end_seconds=9.0)
BLOCK_FIGURES = ("jobs", "jobs_at_start", "arrivals", "guard_share", "latency_p99_seconds")
EVIDENCE_PASSES = frozenset(
    {
        "rollout",  # of one that asks nothing of the cluster nothing is taken
        "blocks[0].candidate",
        "blocks[0].has_twin",
        "blocks[0].twin_priced",  # not read without a twin
        "blocks[0].twin_incumbent",
        "blocks[0].twin_candidate",
        *(f"blocks[0].{name}=zero" for name in ("number", "decisions", "starved_jobs")),
        *(f"blocks[0].{name}=denormal" for name in (*BLOCK_FIGURES, "begin_seconds")),
        "blocks[0].begin_seconds=negative",  # of the cluster's own time
        *(f"shadow.{name}=zero" for name in ("decisions", "agreed", "failed")),
        *(f"shadow.{who}_latency_p99_seconds=denormal" for who in ("incumbent", "candidate")),
        "shadow.believed_gain=negative",
        "shadow.believed_gain=denormal",
        *(f"shadow.{who}_interventions=zero" for who in ("incumbent", "candidate")),
    }
)
# Of a cluster that is not registered nothing is compared.
SEEN_VERSIONS = (*(f"seen_versions=value-{kind}" for kind in NUMBERS), "seen_versions=many")
ROWS: dict[str, Row] = {
    "Register": Row(
        Caller.CLUSTER, {"spec_digest": SPEC.digest, "job_types": ["vgg-16"]}, REGISTER_PASSES, changes=True
    ),
    "PullHead": Row(Caller.CLUSTER, passes=frozenset({"have_step", "have"})),
    "Push": Row(Caller.CLUSTER, _push(), changes=True),
    "Heartbeat": Row(Caller.CLUSTER, {"status": fleet_pb2.ClusterStatus(decisions=1)}, passes=BEAT_PASSES),
    "ShareBeliefs": Row(Caller.CLUSTER, {"revision": 2**40, "types": [SEEN]}, changes=True),
    "ShareEvidence": Row(
        Caller.CLUSTER, {"rollout": 1, "blocks": [BLOCK], "shadow": fleet_pb2.ShadowSums(decisions=1)}, EVIDENCE_PASSES
    ),
    "ShareSketch": Row(Caller.CLUSTER, {"sketch": SKETCH}, SKETCH_PASSES, changes=True),
    "ReturnPolicy": Row(Caller.CLUSTER, {"policy_file": b"none of its files"}, frozenset({"policy_file"})),
    "FetchPolicy": Row(Caller.EITHER, {"version": 1}),
    "Poll": Row(Caller.CLUSTER),
    "Reply": Row(Caller.CLUSTER, {"task": "none"}),
    "RenewCertificate": Row(Caller.CLUSTER, {"signing_request": REQUEST}, changes=True),
    "Enroll": Row(Caller.NOBODY, {"token": "none", "signing_request": REQUEST}, changes=True),
    "ListVersions": Row(Caller.ADMIN),
    "ShowVersion": Row(Caller.ADMIN, {"version": 1}),
    "GetFleet": Row(Caller.ADMIN),
    "GetReport": Row(Caller.ADMIN),
    "AssignVersion": Row(  # of version 0: no longer held on any
        Caller.ADMIN,
        {"version": 1, "clusters": [GOOD_CLUSTER]},
        frozenset({"version=zero", "all=false", "reason", "dry_run", *SEEN_VERSIONS}),
        changes=True,
    ),
    "RollBack": Row(
        Caller.ADMIN,
        {"clusters": [GOOD_CLUSTER], "reason": "as a test", "dry_run": True},
        frozenset({"all=false", "reason", "dry_run", "just_looked", *SEEN_VERSIONS}),
    ),
    "PinVersion": Row(Caller.ADMIN, {"version": 1, "pinned": True}, frozenset({"pinned", "reason"}), changes=True),
    "AliasVersion": Row(Caller.ADMIN, {"version": 1, "alias": "steady"}, frozenset({"move", "reason"}), changes=True),
    "NoteVersion": Row(Caller.ADMIN, {"version": 1, "text": "as a test"}, frozenset({"text"}), changes=True),
    "RestoreVersion": Row(Caller.ADMIN, {"version": 1, "file": b"none of its files"}, changes=True),
    "PublishVersion": Row(Caller.ADMIN, {"policy_file": b"no policy file", "note": "as a test"}, changes=True),
    "ResetHead": Row(Caller.ADMIN, {"version": 1}, frozenset({"reason", "dry_run", "seen_step"}), changes=True),
    "ListAudit": Row(  # a moment is only compared with
        Caller.ADMIN, passes=frozenset(f"since_unix_seconds={kind}" for kind in ("negative", "largest", "denormal"))
    ),
    "StartRollout": Row(
        Caller.ADMIN,
        {"version": 1, "plan_json": "{}", "reason": "as a test", "dry_run": True},
        frozenset({"plan_json=empty", "reason", "dry_run"}),
    ),
    "GetRollout": Row(Caller.ADMIN),
    "ListRollouts": Row(Caller.ADMIN),
    "ActOnRollout": Row(Caller.ADMIN, {"action": "pause", "dry_run": True}),
    "GetKeys": Row(Caller.ADMIN),
    "RotateKey": Row(Caller.ADMIN, {"role": "version"}, frozenset({"seen_root=zero"}), changes=True),
    "EnrollCluster": Row(Caller.ADMIN, changes=True),
    "ListClusters": Row(Caller.ADMIN),
    "EnrollOperator": Row(Caller.ADMIN, {"name": "ada", "role": "viewer", "signing_request": REQUEST}, changes=True),
    "ListOperators": Row(Caller.ADMIN),
    "RevokeOperator": Row(Caller.ADMIN, {"name": "ada"}, frozenset({"reason", "dry_run"}), changes=True),
    # Of a cluster that nobody invited: the one that was would be turned out, whatever reason is given for it.
    "RevokeCluster": Row(Caller.ADMIN, {"cluster": "stranger"}, frozenset({"reason", "dry_run"}), changes=True),
    # Of a cluster that was not turned out, which is refused as it stands; so is whatever is put in a field.
    "ForgetCluster": Row(Caller.ADMIN, {"cluster": "stranger"}, frozenset({"reason", "dry_run"}), changes=True),
    "ReleaseCluster": Row(Caller.ADMIN, passes=frozenset({"reason"})),
}


def methods() -> dict[str, tuple[str, type[Message], type[Message]]]:
    """Every method: the path of its call, and its messages."""
    return {
        method.name: (
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )
        for service in SERVICES.values()
        for method in service.methods
    }


def sound_request(method: str, incarnation: int) -> Message:
    """A request of a method as a sound caller would make it."""
    kind = methods()[method][1]
    named = {"cluster": GOOD_CLUSTER, "incarnation": incarnation}
    fields = {name: value for name, value in named.items() if name in kind.DESCRIPTOR.fields_by_name}
    return kind(**{**fields, **ROWS[method].fields})


def passes(method: str, where: str, kind: str) -> bool:
    """Whether an attack may be taken as if it were none."""
    row = ROWS[method]
    if (where, kind) == ("cluster", "empty"):
        return row.caller in (Caller.CLUSTER, Caller.EITHER)  # the certificate says it
    return bool({where, f"{where}={kind}"} & row.passes)
