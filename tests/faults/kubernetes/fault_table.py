"""Faults of API servers, networks and clusters that were seen on real ones, by name, and where each is injected.

Those of a write are injected at every write of the reconcile loops that they can happen to (`STRIKES`); the others in
the test that is named (`ELSEWHERE`); two cannot happen to an agent that does what ours does (`NEVER`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from apiserver.asked import FLOW_CONTROL, Fault, webhook_down

from cluster_agent.kubernetes.errors import ApiError, ApiUnanswered, error_of

Json = dict[str, Any]
CREATE, PATCH, UPDATE, DELETE = "create", "patch", "update", "delete"
_ALL = (CREATE, PATCH, UPDATE, DELETE)


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault of a write.

    Attributes:
        fault: what the test API server does.
        verbs: of writes to which it happens.
        ends_alone: it is this one object's, and happens once; else it is the server's, and lasts for a while.
    """

    fault: Fault
    verbs: tuple[str, ...] = _ALL
    ends_alone: bool = True

    @property
    def comes_after(self) -> bool:
        """Whether the write was carried out."""
        return self.fault.cut or self.fault.hang_seconds > 0.0

    def error(self, asked: str) -> ApiError:
        """What a client makes of it."""
        if self.comes_after:
            return ApiUnanswered(f"{asked}: the answer was cut")
        status = self.fault.status or {"kind": "Status", "code": self.fault.code}
        return error_of(self.fault.code, status, asked, float(self.fault.retry_after))


def _refused(code: int, reason: str, message: str, **details: Any) -> Fault:
    status: Json = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return Fault(code, status=status)


def _caused(code: int, reason: str, message: str, cause: str) -> Fault:
    return _refused(code, reason, message, causes=[{"reason": cause, "field": ".spec", "message": message}])


STRIKES: Mapping[str, Strike] = MappingProxyType(
    {
        "409 AlreadyExists": Strike(_refused(409, "AlreadyExists", "it already exists"), (CREATE,)),
        "stale resourceVersion on PUT": Strike(
            _refused(409, "Conflict", "the object has been modified; apply your changes to the latest"), (UPDATE,)
        ),
        "stale resourceVersion on patch": Strike(
            _refused(409, "Conflict", "the object has been modified; apply your changes to the latest"), (PATCH,)
        ),
        "uid of a precondition is another's": Strike(_refused(409, "Conflict", "Precondition failed: UID"), (DELETE,)),
        "server-side apply conflict": Strike(
            _caused(409, "Conflict", 'conflict with "kubectl"', "FieldManagerConflict"), (PATCH,)
        ),
        "410 as HTTP status": Strike(_refused(410, "Expired", "too old resource version"), (PATCH, UPDATE)),
        "400 strict decoding": Strike(
            _refused(400, "BadRequest", 'strict decoding error: unknown field "spec.contaners"'), (CREATE, PATCH)
        ),
        "400 of a time without six digits": Strike(
            _refused(400, "BadRequest", 'parsing time "2026-01-01T00:00:00Z" as ".000000"'), (CREATE, UPDATE)
        ),
        "415 strategic patch on a custom resource": Strike(
            _refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format"), (PATCH,)
        ),
        "422 a rule in CEL": Strike(_caused(422, "Invalid", "spec: Invalid value: max below min", "FieldValueInvalid")),
        "401 after token rotation": Strike(_refused(401, "Unauthorized", "Unauthorized"), ends_alone=False),
        "403": Strike(_refused(403, "Forbidden", "cannot do that in the namespace"), ends_alone=False),
        "403 a quota": Strike(_refused(403, "Forbidden", "exceeded quota: few, requested: pods=1"), (CREATE,)),
        "404 on delete": Strike(_refused(404, "NotFound", "not found"), (DELETE,)),
        "404 on patch": Strike(_refused(404, "NotFound", "not found"), (PATCH, UPDATE)),
        "429 with Retry-After": Strike(Fault(429, retry_after=1), ends_alone=False),
        "429 of flow control, in plain text": Strike(FLOW_CONTROL, ends_alone=False),
        "500": Strike(Fault(500), ends_alone=False),
        "500 a webhook that is down": Strike(webhook_down(), (CREATE, PATCH), ends_alone=False),
        "503": Strike(Fault(503), ends_alone=False),
        "504": Strike(_refused(504, "Timeout", "request did not complete within the allotted timeout")),
        "a time-out after the commit": Strike(Fault(cut=True)),
    }
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A fault that is no write's, and the tests that inject it, as `file::test` below `tests/`."""

    tests: tuple[str, ...]


_WATCHES = "faults/kubernetes/test_watch_faults.py"
_LISTS = "cluster_agent/kubernetes/test_list_watch.py"


def _under_way(name: str) -> Elsewhere:
    return Elsewhere((f"{_WATCHES}::test_{name}",))


_STREAM = Elsewhere(
    (
        f"{_WATCHES}::test_sizes_come_though_watches_fail",
        f"{_LISTS}::test_watches_that_are_cut_repeated_or_closed_at_once_lose_nothing",
    )
)
ELSEWHERE: Mapping[str, Elsewhere] = MappingProxyType(
    {
        "410 as an in-stream ERROR": Elsewhere(
            (
                f"{_WATCHES}::test_sizes_come_though_what_was_seen_has_expired",
                f"{_LISTS}::test_a_watch_from_a_version_that_is_no_longer_kept_lists_anew",
            )
        ),
        "410 as HTTP status of a watch": _under_way("sizes_come_though_what_was_seen_has_expired"),
        "a stale-RV close without an error": _STREAM,
        "expired continue": Elsewhere((f"{_LISTS}::test_a_list_whose_next_page_has_run_out_begins_anew",)),
        "a watch that is silent": _STREAM,
        "a watch that is cut in mid-line": _STREAM,
        "duplicated events": _STREAM,
        "reordered events": Elsewhere(
            (
                f"{_WATCHES}::test_sizes_come_though_watches_fail",
                "cluster_agent/kubernetes/test_cache.py::"
                "test_news_in_any_order_and_more_than_once_end_with_what_is_there",
            )
        ),
        "DELETED missed while away": _under_way("pods_that_went_while_nobody_watched_give_their_room"),
        "a future resourceVersion after a restored etcd: 200 and silence": Elsewhere(
            (
                f"{_WATCHES}::test_sizes_come_after_a_store_was_set_back",
                f"{_LISTS}::test_a_store_that_was_set_back_is_noticed_by_its_silence",
            )
        ),
        "504 on a list of a future version": Elsewhere(
            ("kube/test_contract.py::test_a_list_from_a_version_of_the_future_is_too_large",)
        ),
        "discovery lags a new CRD": Elsewhere(
            (
                f"{_LISTS}::test_a_resource_that_is_not_there_yet_is_waited_for",
                "faults/kubernetes/test_bad_training_jobs.py::test_a_crd_that_is_not_installed_yet",
            )
        ),
        "a server that closes each watch at once, or answers 500 and 403": Elsewhere(
            (f"{_LISTS}::test_a_server_that_is_in_trouble_is_not_knocked_at_without_a_pause",)
        ),
        "a Lease time without a fraction": Elsewhere(
            ("faults/kubernetes/test_lease_writes.py::test_every_time_in_a_lease_has_six_digits",)
        ),
        "a foreign pod with nodeName overcommits": _under_way("a_node_that_others_overfilled_has_nothing_to_give"),
        "a required node that is not there": Elsewhere(
            ("faults/kubernetes/test_training_writes.py::test_a_node_that_is_not_there_is_waited_for_and_given_back",)
        ),
        "pods of a deleted owner linger": Elsewhere(
            ("faults/kubernetes/test_training_writes.py::test_pods_of_a_job_that_is_gone_are_waited_for",)
        ),
        "there is no fencing in the API": Elsewhere(
            (
                "faults/kubernetes/test_two_agents.py::"
                "test_an_agent_that_wakes_up_after_its_lease_writes_nothing_and_the_job_completes",
            )
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Never:
    """A fault that cannot happen to us: why, and the test that says so."""

    why: str
    test: str


NEVER: Mapping[str, Never] = MappingProxyType(
    {
        "double bind, and a bind that raises after it was done": Never(
            "nothing is bound: pods are made without spec.nodeName, and kube-scheduler places them",
            "faults/kubernetes/test_training_writes.py::test_no_pod_is_bound_by_us",
        ),
        "a bind to a node that does not exist": Never(
            "likewise", "faults/kubernetes/test_training_writes.py::test_no_pod_is_bound_by_us"
        ),
    }
)

EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "409 AlreadyExists": "409 AlreadyExists",
        "stale RV on PUT": "stale resourceVersion on PUT",
        "stale RV on patch": "stale resourceVersion on patch",
        "double bind": "double bind, and a bind that raises after it was done",
        "410 as an in-stream ERROR": "410 as an in-stream ERROR",
        "410 as HTTP status": "410 as HTTP status of a watch",
        "stale-RV close without an error": "a stale-RV close without an error",
        "expired continue": "expired continue",
        "400 strict decoding": "400 strict decoding",
        "400 microtime": "400 of a time without six digits",
        "415 strategic patch on a CR": "415 strategic patch on a custom resource",
        "422 CEL": "422 a rule in CEL",
        "401 after token rotation": "401 after token rotation",
        "403": "403",
        "404 on delete": "404 on delete",
        "429 with Retry-After": "429 with Retry-After",
        "500": "500",
        "503": "503",
        "time-out after the commit": "a time-out after the commit",
        "watch: silent hang": "a watch that is silent",
        "watch: cut in mid-line": "a watch that is cut in mid-line",
        "watch: duplicated events": "duplicated events",
        "watch: reordered events": "reordered events",
        "watch: DELETED missed while away": "DELETED missed while away",
        "a nonexistent node is accepted by a binding": "a bind to a node that does not exist",
        "informer storms on 500/403 and on closed watches": (
            "a server that closes each watch at once, or answers 500 and 403"
        ),
        "a required node name that is missing is Pending for ever": "a required node that is not there",
        "a foreign pod with nodeName overcommits": "a foreign pod with nodeName overcommits",
        "future resourceVersion: 200 and silence": "a future resourceVersion after a restored etcd: 200 and silence",
        "future resourceVersion: 504 on a list": "504 on a list of a future version",
        "discovery lag of a new CRD": "discovery lags a new CRD",
        "server-side apply conflict": "server-side apply conflict",
        "Lease time without a fraction": "a Lease time without a fraction",
        "pods of a deleted owner": "pods of a deleted owner linger",
        "a typo in a template": "400 strict decoding",
        "no fencing": "there is no fencing in the API",
    }
)
"""Every fault of the project's list, and under which name it is here."""


@dataclass
class Once:
    """Strikes at the write with a number, counted from 0; with what lasts, at all writes until it is ended.

    Attributes:
        struck: the write that was hit first; None before.
        is_over: the server is well again.
    """

    number: int
    strike: Strike
    struck: str | None = None
    is_over: bool = False

    def hits(self, number: int, verb: str, name: str) -> bool:
        """Whether a write is hit.

        Args:
            number: of the write.
        """
        if number == self.number:
            self.struck = f"{verb} {name}"
            return verb in self.strike.verbs
        lasts = self.struck is not None and not self.strike.ends_alone and not self.is_over
        return lasts and verb in self.strike.verbs
