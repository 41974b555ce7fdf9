"""The test API server over HTTP: verbs, lists in pages, watches with bookmarks, Statuses, and faults on demand.

One event loop, which runs in a thread of its own, owns everything; tests reach it by `KubeServer.call`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from apiserver.controllers.stepping import Controller, has_ended
from apiserver.custom import admitted, schemas_of, served_by
from apiserver.registry import Registry, Served
from apiserver.selection import Matches, selected
from apiserver.store import Change, Refused, Store, expired

Json = dict[str, Any]
Result = TypeVar("Result")
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_LOG_SECONDS = 0.1
_LONGEST_STEP_SECONDS = 0.2
_PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


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
        return self.verb in ("create", "update", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request instead of, or besides, its answer.

    Attributes:
        code: the answer, before anything is done; 0: it is carried out.
        cut: the connection ends without an answer, after the request was carried out.
        hang_seconds: nothing is said for so long, after it was carried out.
        status: the body of the answer.
        retry_after: the header.
        watch: "close" at once, "silent", "half" (cut in the middle of the next event), "twice" (every event).
    """

    code: int = 0
    cut: bool = False
    hang_seconds: float = 0.0
    status: Json | None = None
    retry_after: int = 0
    watch: str = ""


class KubeServer:
    """A server on a free port of this machine.

    Args:
        tokens: of users who may ask; anybody may, as `admin`, where there are none.
    """

    def __init__(
        self,
        tokens: dict[str, str] | None = None,
        bookmark_seconds: float = 60.0,
        namespaces: tuple[str, ...] = ("team",),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = Store(wall_clock)
        self.registry = Registry()
        self.schemas: dict[tuple[str, str], Json] = {}
        self.asked: list[Asked] = []
        self.bookmark_seconds = bookmark_seconds
        self.offers_watch_list = True
        self.expired_as_http = False
        self.tokens = tokens or {}
        self.may: Callable[[Asked], bool] = lambda asked: True
        self.faults: Callable[[Asked], Fault | None] = lambda asked: None
        self._loop = asyncio.new_event_loop()
        for name in ("default", "kube-system", *namespaces):
            self.store.create("namespaces", {"metadata": {"name": name}, "status": {"phase": "Active"}})
        self.logs: Callable[[Json], Path] | None = None
        """File with what a pod has said; without it no pod has a log."""
        self.controllers: list[Controller] = []
        self.failures: list[Exception] = []
        """Of controllers; `running` raises the first."""
        self._step_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: set[asyncio.Queue[Change | None]] = set()
        self.store.on_change.append(self._tell)
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[KubeServer]:
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        thread.start()
        assert started.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join(30)
        if self.failures:
            raise self.failures[0]

    def attach(self, controller: Controller) -> None:
        """Let a stand-in work on this server, from now on; before it runs, or within `call`."""
        self.controllers.append(controller)
        self.store.on_change.append(controller.note)
        self.wake()

    def wake(self) -> None:
        """Have the controllers do a step soon; in the thread that owns the store, or before it runs."""
        if not self._step_asked and not self._loop.is_closed():
            self._step_asked = True
            self._loop.call_soon(self._step)

    def call(self, do: Callable[[], Result]) -> Result:
        """Do something with the store, in the thread that owns it."""

        async def done() -> Result:
            return do()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    def settle(self, seconds: float = 120.0) -> None:
        """Wait until the controllers have nothing to do that is due by the store's clock.

        Raises:
            TimeoutError: they did not come to an end.
        """
        deadline = time.monotonic() + seconds
        while self.call(self._has_work):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the controllers were not done within {seconds} s")

    def _has_work(self) -> bool:
        before = self.store.version
        due = [at for at in [controller.step() for controller in self.controllers] if at is not None]
        return self.store.version != before or any(at <= self.store.seconds() for at in due)

    def _step(self) -> None:
        """One step of each controller; another one soon if they wrote, else when the next thing is due."""
        self._step_asked = False
        if self._timer is not None:
            self._timer.cancel()
        before = self.store.version
        due = []
        for controller in self.controllers:
            try:
                due.append(controller.step())
            except Exception as error:
                self.failures.append(error)
                raise
        if self.store.version != before:
            self.wake()
            return
        times = [at for at in due if at is not None]
        if times:
            # The store's clock need not go like that of the loop: a test may set it.
            wait = min(max(min(times) - self.store.seconds(), 0.005), _LONGEST_STEP_SECONDS)
            self._timer = self._loop.call_later(wait, self._step)

    def close_watches(self) -> None:
        """End all watches, as a server that restarts does."""
        self.call(lambda: [queue.put_nowait(None) for queue in self._watchers])

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(started))
        self._loop.close()

    async def _serve(self, started: threading.Event) -> None:
        self._end = asyncio.Event()
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        started.set()
        await self._end.wait()
        for queue in self._watchers:
            queue.put_nowait(None)
        await runner.cleanup()

    def _tell(self, change: Change) -> None:
        if change.plural == _CRDS and change.after is not None:
            crd = change.after
            for served in served_by(crd):
                self.registry.served[served.group, served.version, served.plural] = served
                self.schemas[served.table, served.version] = schemas_of(crd)[served.version]
        for queue in self._watchers:
            queue.put_nowait(change)
        if self.controllers:
            self.wake()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except Refused as refused:
            return _json(refused.status, refused.code)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        place = _place(request.path)
        if place is None:
            return self._discover(request.path)
        group, version, namespace, plural, name, part = place
        served = self.registry.find(group, version, plural)
        query = request.query
        watched = query.get("watch") in ("1", "true")
        verb = {
            "GET": "get" if name else "list",
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
        }
        if request.method not in verb:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        asked = Asked(
            "watch" if watched else verb[request.method],
            served.table,
            namespace if served.namespaced else "",
            name,
            part,
            user,
            query.get("dryRun") == "All",
        )
        self.asked.append(asked)
        if not self.may(asked):
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            what = f'User "{user}" cannot {asked.verb} resource "{plural}" in API group "{group}"{where}'
            raise Refused(403, "Forbidden", f"{plural} is forbidden: {what}")
        fault = self.faults(asked) or Fault()
        if fault.code:
            status = fault.status or Refused(fault.code, "", "a fault of this test").status
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            return _json(status, fault.code, headers)
        if asked.verb == "watch":
            return await self._watch(request, served, namespace, fault)
        if (asked.resource, asked.part, asked.verb) == ("pods", "log", "get"):
            return await self._log(request, asked)
        answer = await self._do(request, served, asked)
        if fault.hang_seconds:
            await asyncio.sleep(fault.hang_seconds)
        if fault.cut:
            assert request.transport is not None
            request.transport.close()
        return answer

    def _user(self, request: web.Request) -> str:
        if not self.tokens:
            return "admin"
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self.tokens.get(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    def _discover(self, path: str) -> web.Response:
        parts = [part for part in path.split("/") if part]
        if parts == ["version"]:
            return _json({"major": "1", "minor": "36", "gitVersion": "v1.36.0-test"})
        if parts in (["healthz"], ["readyz"], ["livez"]):
            return web.Response(text="ok")
        if parts == ["api"]:
            return _json({"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            groups = [_group(name, versions) for name, versions in self.registry.groups().items() if name]
            return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        group_version = ("", parts[1]) if parts[:1] == ["api"] and len(parts) == 2 else tuple(parts[1:])
        if parts[:1] in (["api"], ["apis"]) and len(group_version) == 2:
            found = self.registry.of(*group_version)
            if found:
                resources = [entry for each in found for entry in _discovered(each)]
                listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version}
                return _json({**listed, "resources": resources})
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    async def _do(self, request: web.Request, served: Served, asked: Asked) -> web.Response:
        table, dry = served.table, asked.dry_run
        if asked.verb == "list":
            return self._list(request, served, asked.namespace)
        if asked.verb == "get":
            return _json(self._shown(served, self.store.get(table, asked.namespace, asked.name)))
        if asked.verb == "delete":
            options = await _body(request) if request.can_read_body else {}
            for name in ("gracePeriodSeconds", "propagationPolicy"):
                if name in request.query:
                    options[name] = int(request.query[name]) if name.startswith("grace") else request.query[name]
            found = self.store.delete(table, asked.namespace, asked.name, options, dry_run=dry)
            return _json(self._shown(served, found))
        body = await _body(request)
        if asked.verb == "patch":
            kind = request.content_type
            if kind not in _PATCHES:
                raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format - {kind}")
            before = self.store.get(table, asked.namespace, asked.name)
            body = merged(before, body)
        stated = body.get("metadata", {}).get("name")
        if (
            body.get("kind", served.kind) != served.kind
            or body.get("apiVersion", served.api_version) != served.api_version
        ):
            raise Refused(400, "BadRequest", f"the object is no {served.kind} of {served.api_version}")
        if asked.name and stated not in (None, asked.name):
            line = f"the name of the object ({stated}) does not match the name on the URL ({asked.name})"
            raise Refused(400, "BadRequest", line)
        if served.namespaced:
            inside = body.setdefault("metadata", {}).setdefault("namespace", asked.namespace)
            if inside != asked.namespace:
                raise Refused(
                    400, "BadRequest", "the namespace of the object does not match the namespace on the request"
                )
        body |= {"kind": served.kind, "apiVersion": served.api_version}
        _check(served, body)
        schema = self.schemas.get((served.table, served.version))
        if schema is not None:
            body = admitted(served, schema, body)
        if asked.verb == "create" and served.namespaced:
            self._may_be_made_in(asked)
        if asked.verb == "create":
            if served.has_status and served.table not in ("pods", "nodes"):
                body = {name: value for name, value in body.items() if name != "status"}
            if served.table == "pods":
                body.setdefault("status", {}).setdefault("phase", "Pending")
            return _json(self._shown(served, self.store.create(table, body, dry_run=dry)), 201)
        found = self.store.replace(table, asked.namespace, asked.name, body, asked.part, dry_run=dry)
        return _json(self._shown(served, found))

    async def _log(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        """What a pod has said, and with `follow` what it says until it has ended."""
        pod = self.store.get("pods", asked.namespace, asked.name)
        if self.logs is None:
            raise Refused(400, "BadRequest", f"no log of pod {asked.name}: its containers are not real")
        path, lines = self.logs(pod), request.query.get("tailLines")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        at = 0
        while True:
            found = self.store.objects["pods"].get((asked.namespace, asked.name))
            last = found is None or has_ended(found) or request.query.get("follow") not in ("1", "true")
            text = path.read_bytes()[at:] if path.exists() else b""
            at += len(text)
            if lines is not None:
                text, lines = b"".join(text.splitlines(keepends=True)[-int(lines) :]), None
            with contextlib.suppress(ConnectionResetError):
                await response.write(text)
            if last:
                return response
            await asyncio.sleep(_LOG_SECONDS)

    def _may_be_made_in(self, asked: Asked) -> None:
        where = self.store.get("namespaces", "", asked.namespace)
        if "deletionTimestamp" in where["metadata"]:
            line = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
            raise Refused(403, "Forbidden", line)

    def _shown(self, served: Served, found: Json) -> Json:
        return {"kind": served.kind, "apiVersion": served.api_version, **found}

    def _list(self, request: web.Request, served: Served, namespace: str) -> web.Response:
        query = request.query
        matches = selected(served.plural, query.get("labelSelector", ""), query.get("fieldSelector", ""), served.fields)
        stated, version, after = query.get("resourceVersion", ""), self.store.version, ("", "")
        if query.get("continue"):
            try:
                at = json.loads(base64.urlsafe_b64decode(query["continue"]))
                version, after = int(at["rv"]), tuple(at["start"])
            except (ValueError, KeyError, TypeError) as error:
                raise Refused(400, "BadRequest", "continue key is not valid") from error
            if version < self.store.compacted:
                line = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", line)
        elif stated not in ("", "0") and int(stated) > self.store.version:
            raise Refused(
                504,
                "Timeout",
                f"Too large resource version: {stated}, current: {self.store.version}",
                {
                    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1,
                },
            )
        table = (
            self.store.objects.get(served.table, {})
            if version == self.store.version
            else self.store.at(served.table, version)
        )
        limit = int(query.get("limit") or 0)
        keys = sorted(key for key in table if key > after and (not namespace or key[0] == namespace))
        items, rest = [], 0
        for number, key in enumerate(keys):
            if matches(table[key]):
                items.append((key, table[key]))
                if limit and len(items) == limit:
                    rest = len(keys) - number - 1
                    break
        metadata: Json = {"resourceVersion": str(version)}
        if rest:
            token = json.dumps({"rv": version, "start": items[-1][0]}).encode()
            metadata["continue"] = base64.urlsafe_b64encode(token).decode()
            metadata["remainingItemCount"] = rest
        found = {"kind": f"{served.kind}List", "apiVersion": served.api_version, "metadata": metadata}
        return _json({**found, "items": [item for _, item in items]})

    async def _watch(self, request: web.Request, served: Served, namespace: str, fault: Fault) -> web.StreamResponse:
        query = request.query
        matches = selected(served.plural, query.get("labelSelector", ""), query.get("fieldSelector", ""), served.fields)
        stated = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.offers_watch_list:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise Refused(422, "Invalid", f"sendInitialEvents: Forbidden: {why}")
        since = int(stated) if stated.isdigit() and stated != "0" else 0
        too_old = since and not initial and since < self.store.compacted
        if too_old and self.expired_as_http:
            raise expired(since, self.store.compacted)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        # From here on no change is missed: it waits in the queue.
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            await response.prepare(request)
            if fault.watch == "close":
                return response
            if fault.watch == "silent":
                await asyncio.sleep(3600)
            if too_old:
                await _send(response, "ERROR", expired(since, self.store.compacted).status)
                return response
            watch = _Watch(self, response, served, namespace, matches, fault)
            ends_at = time.monotonic() + (float(query.get("timeoutSeconds") or 0) or 1800.0)
            await watch.begin(since, initial, queue)
            bookmarks = query.get("allowWatchBookmarks") == "true"
            await watch.follow(queue, ends_at, self.bookmark_seconds if bookmarks else None)
        except (ConnectionResetError, _Cut):
            pass
        finally:
            self._watchers.discard(queue)
        return response


class _Cut(Exception):
    """The connection was ended on purpose."""


class _Watch:
    def __init__(
        self,
        server: KubeServer,
        response: web.StreamResponse,
        served: Served,
        namespace: str,
        matches: Matches,
        fault: Fault,
    ) -> None:
        self._server, self._response, self._served, self._fault = server, response, served, fault
        self._namespace, self._matches = namespace, matches
        self._told = 0

    async def begin(self, since: int, initial: bool, queue: asyncio.Queue[Change | None]) -> None:
        store = self._server.store
        if initial or not since:
            self._told = store.version
            for found in list(store.all(self._served.table, self._namespace)):
                if self._matches(found):
                    await self._send("ADDED", found)
            if initial:
                await self._bookmark({"k8s.io/initial-events-end": "true"})
            return
        self._told = since
        for change in list(store.changes_after(since)):
            await self._show(change)

    async def follow(self, queue: asyncio.Queue[Change | None], ends_at: float, bookmark_seconds: float | None) -> None:
        bookmark_at = float("inf") if bookmark_seconds is None else time.monotonic() + bookmark_seconds
        getting = asyncio.ensure_future(queue.get())
        try:
            while True:
                await asyncio.wait({getting}, timeout=max(0.0, min(ends_at, bookmark_at) - time.monotonic()))
                if getting.done():
                    change = getting.result()
                    if change is None:
                        return
                    getting = asyncio.ensure_future(queue.get())
                    await self._show(change)
                elif time.monotonic() >= ends_at:
                    return
                else:
                    # A store that was set back is behind what this watch began from: it knows nothing of its version.
                    if self._told <= self._server.store.version:
                        self._told = self._server.store.version
                        await self._bookmark({})
                    bookmark_at = time.monotonic() + (bookmark_seconds or 0.0)
        finally:
            getting.cancel()

    async def _show(self, change: Change) -> None:
        if change.plural != self._served.table or change.version <= self._told:
            return
        self._told = change.version
        was, now = self._is_shown(change.before), self._is_shown(change.after)
        if now:
            await self._send("MODIFIED" if was else "ADDED", change.seen)
        elif was:
            await self._send("DELETED", change.gone)

    def _is_shown(self, found: Json | None) -> bool:
        if found is None or (self._namespace and found["metadata"].get("namespace") != self._namespace):
            return False
        return self._matches(found)

    async def _bookmark(self, annotations: dict[str, str]) -> None:
        metadata: Json = {"resourceVersion": str(self._told)}
        if annotations:
            metadata["annotations"] = annotations
        await self._send("BOOKMARK", {"metadata": metadata})

    async def _send(self, kind: str, found: Json) -> None:
        shown = {"kind": self._served.kind, "apiVersion": self._served.api_version, **found}
        if self._fault.watch == "half":
            line = json.dumps({"type": kind, "object": shown}).encode()
            await self._response.write(line[: len(line) // 2])
            raise _Cut
        for _ in range(2 if self._fault.watch == "twice" else 1):
            await _send(self._response, kind, shown)


async def _send(response: web.StreamResponse, kind: str, found: Json) -> None:
    await response.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")


async def _body(request: web.Request) -> Json:
    try:
        found = json.loads(await request.read() or b"{}")
    except ValueError as error:
        raise Refused(400, "BadRequest", f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the body is no object")
    return found


def merged(found: Any, patch: Any) -> Any:
    """A merge patch applied. Source: RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(found) if isinstance(found, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _place(path: str) -> tuple[str, str, str, str, str, str] | None:
    """Group, version, namespace, plural, name and subresource of a path; None where it names no resource."""
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
    return group, version, namespace, plural, name, part


def _check(served: Served, body: Json) -> None:
    if served.table == "leases.coordination.k8s.io":
        for name in ("renewTime", "acquireTime"):
            value = (body.get("spec") or {}).get(name)
            if value is not None and not _is_micro_time(value):
                raise Refused(400, "BadRequest", f'Lease in version "v1" cannot be handled: parsing time "{value}"')


def _is_micro_time(value: Any) -> bool:
    whole, dot, fraction = str(value).partition(".")
    return len(whole) == 19 and dot == "." and len(fraction) == 7 and fraction[:6].isdigit() and fraction[6] == "Z"


def _group(name: str, versions: list[str]) -> Json:
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def _discovered(served: Served) -> list[Json]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    entry: Json = {
        "name": served.plural,
        "singularName": served.kind.lower(),
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": verbs,
        "shortNames": list(served.short),
    }
    if not served.has_status:
        return [entry]
    return [entry, {**entry, "name": f"{served.plural}/status", "verbs": ["get", "patch", "update"], "shortNames": []}]


def _json(found: Json, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=json.dumps(found).encode(), status=code, headers=headers, content_type="application/json")
