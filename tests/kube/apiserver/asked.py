"""Requests to the test API server: what one asks for, and the fault that a test has happen to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from apiserver.protobuf import decoded
from apiserver.store import Refused

Json = dict[str, Any]
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the verb is RBAC's."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    part: str = ""
    user: str = ""
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return self.verb in ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request instead of, or besides, its answer.

    Attributes:
        code: the answer, before anything is done; 0: it is carried out.
        cut: the connection ends without an answer, after the request was carried out.
        hang_seconds: nothing is said for so long, after it was carried out.
        status: the body of the answer; `text`, if there is any, in its place, as plain text.
        retry_after: the header.
        watch: "close" at once, "silent", "half" (cut in the middle of the next event), "twice" (every event), "swapped"
            (every other event of changes comes after the one that follows it, or before the next bookmark).
    """

    code: int = 0
    cut: bool = False
    hang_seconds: float = 0.0
    status: Json | None = None
    retry_after: int = 0
    watch: str = ""
    text: str = ""


NOT_SERVED_YET = Fault(404, text="404 page not found\n")
"""The answer for a resource whose CRD is established, until every handler knows it."""
FLOW_CONTROL = Fault(429, retry_after=1, text="Too many requests, please try again later.\n")
"""The answer to a user whose requests fill the queues of his priority level (API Priority and Fairness)."""


def re_initializing() -> Fault:
    """The answer to lists and watches while the server fills its cache anew, after etcd was away, say."""
    status = Refused(429, "TooManyRequests", "storage is (re)initializing", {"retryAfterSeconds": 1}).status
    return Fault(429, status=status, retry_after=1)


def webhook_down(name: str = "validate.example.org") -> Fault:
    """The answer to a write while an admission webhook, that must agree to it, does not answer."""
    why = 'failed to call webhook: Post "https://webhook.system.svc:443/validate?timeout=10s": connection refused'
    line = f'Internal error occurred: failed calling webhook "{name}": {why}'
    return Fault(500, status=Refused(500, "InternalError", line, {"causes": [{"message": line}]}).status)


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    part: str


def place_of(path: str) -> Place | None:
    """The place of a path; None where it names no resource."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"] and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, part = [*rest, "", ""][:3]
    return Place(group, version, namespace, plural, name, part)


def verb_of(method: str, query: Mapping[str, str], name: str) -> str:
    """The verb, as Roles have it.

    Raises:
        Refused: 405, there is no such method.
    """
    if method not in _VERBS:
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    if query.get("watch") in ("1", "true"):
        return "watch"
    if not name and method in ("GET", "DELETE"):
        return "list" if method == "GET" else "deletecollection"
    return _VERBS[method]


def named_by(query: Mapping[str, str]) -> str:
    """The one object that a list or a watch is of: a Role may grant it by that name."""
    field, _, name = query.get("fieldSelector", "").partition("=")
    return name.removeprefix("=") if field == "metadata.name" else ""


async def body_of(request: web.Request) -> Any:
    """The body, from JSON or YAML.

    Raises:
        Refused: 400, it is none of them; 415, it is in a form that is not read here.
    """
    text = await request.read()
    if request.content_type == "application/vnd.kubernetes.protobuf":
        return decoded(text)
    try:
        if "yaml" in request.content_type and not text.lstrip().startswith(b"{"):
            return yaml.safe_load(text)
        return json.loads(text or b"{}")
    except (ValueError, yaml.YAMLError) as error:
        raise Refused(400, "BadRequest", f"the body is no JSON: {error}") from error


def answered(found: Json, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=json.dumps(found).encode(), status=code, headers=headers, content_type="application/json")
