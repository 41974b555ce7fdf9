"""The test API server over HTTP, with and without TLS: who asks, what for, and the fault that a test wants.

One event loop, which runs in a thread of its own, owns everything; tests reach it by `KubeServer.call`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from apiserver.answers.discovery import discovered
from apiserver.answers.encoding import Encoded
from apiserver.answers.listing import listed
from apiserver.answers.logs import log_of
from apiserver.answers.tables import table_of, wants_table
from apiserver.answers.watching import Watches, WatchOptions
from apiserver.asked import Asked, Fault, answered, body_of, named_by, place_of, verb_of, webhook_down
from apiserver.controllers.stepping import Controller
from apiserver.controllers.turns import Turns
from apiserver.rbac import reviewed
from apiserver.registry import Registry, Served
from apiserver.store import Change, Refused, Store
from apiserver.tls import certified
from apiserver.writing.custom import schemas_of, served_by
from apiserver.writing.verbs import CRDS, Writer

__all__ = ["Asked", "Fault", "KubeServer", "webhook_down"]

Json = dict[str, Any]
Result = TypeVar("Result")
_REVIEWS = ("selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io")


class KubeServer:
    """A server on a free port of this machine.

    Args:
        tokens: of users who may ask; anybody may, as `admin`, where there are none.
        wall_clock: Unix seconds.
        certificates: an empty folder, for a second port with TLS, on which alone kubectl sends tokens.
    """

    def __init__(
        self,
        tokens: dict[str, str] | None = None,
        bookmark_seconds: float = 60.0,
        namespaces: tuple[str, ...] = ("team",),
        wall_clock: Callable[[], float] = time.time,
        certificates: Path | None = None,
    ) -> None:
        self.store = Store(wall_clock)
        self.registry = Registry()
        self.schemas: dict[tuple[str, str], Json] = {}
        self.asked: list[Asked] = []
        self.bookmark_seconds = bookmark_seconds
        self.offers_watch_list = True
        self.expired_as_http = False
        self.tokens = tokens or {}
        self.expiry_unix_seconds: dict[str, float] = {}
        """Of tokens that run out; by the wall clock."""
        self.may: Callable[[Asked], bool] = lambda asked: True
        self.faults: Callable[[Asked], Fault | None] = lambda asked: None
        self.logs: Callable[[Json], Path] | None = None
        """File with what a pod has said; without it no pod has a log."""
        self.writer = Writer(self.store, self.schemas)
        self._loop = asyncio.new_event_loop()
        self._watches = Watches(self.store)
        self._encoded = Encoded(self.store)
        self._turns = Turns(self.store, self._loop)
        self._tls: ssl.SSLContext | None = None
        self.ca_file: Path | None = None
        if certificates is not None:
            self._tls, self.ca_file = certified(certificates)
        for name in ("default", "kube-system", *namespaces):
            self.store.create("namespaces", {"metadata": {"name": name}, "status": {"phase": "Active"}})
        self.store.on_change.append(self._tell)
        self.port = self.secure_port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def secure_address(self) -> str:
        """The one with TLS, whose authority is in `ca_file`."""
        assert self._tls is not None, "this server has no certificates"
        return f"https://127.0.0.1:{self.secure_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[KubeServer]:
        """The server, until the end of the block.

        Raises:
            Exception: the first that this server or a stand-in failed with.
        """
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        thread.start()
        assert started.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join(30)
        if self._turns.failures:
            raise self._turns.failures[0]

    def call(self, do: Callable[[], Result]) -> Result:
        """Do something with the store, in the thread that owns it."""

        async def done() -> Result:
            return do()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    def attach(self, controller: Controller) -> None:
        """Let a stand-in work on this server; before it runs, or within `call`."""
        self._turns.attach(controller)

    def detach_all(self) -> None:
        """End the work of all stand-ins; within `call`."""
        self._turns.detach_all()

    def wake(self) -> None:
        """Have the stand-ins look for what there is to do; in the thread that owns the store."""
        self._turns.wake()

    def settle(self, seconds: float = 120.0) -> None:
        """Wait until the stand-ins have nothing to do that is due by the store's clock.

        Raises:
            TimeoutError: they did not come to an end.
        """
        deadline = time.monotonic() + seconds
        while self.call(self._turns.turn):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the controllers were not done within {seconds} s")

    def close_watches(self) -> None:
        """End all watches, as a server that restarts does."""
        self.call(self._watches.close)

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
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        if self._tls is not None:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.port, self.secure_port = runner.addresses[0][1], runner.addresses[-1][1]
        started.set()
        await self._end.wait()
        self._watches.close()
        await runner.cleanup()

    def _tell(self, change: Change) -> None:
        if change.plural == CRDS:
            for served in served_by(change.seen):
                key = (served.group, served.version, served.plural)
                if change.after is None:
                    self.registry.served.pop(key, None)
                    self.schemas.pop((served.table, served.version), None)
                else:
                    self.registry.served[key] = served
                    self.schemas[served.table, served.version] = schemas_of(change.after)[served.version]
        self._watches.tell(change)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except Refused as refused:
            return answered(refused.status, refused.code)
        except ConnectionError:
            raise
        except Exception as error:
            self._turns.failures.append(error)  # a fault of this server, not of who asks: the test shall know
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        place = place_of(request.path)
        if place is None or request.path.startswith("/openapi"):
            found = discovered(self.registry, self.schemas, request.path)
            return web.Response(text=found) if isinstance(found, str) else answered(found)
        served = self.registry.find(place.group, place.version, place.plural)
        verb = verb_of(request.method, request.query, place.name)
        namespace = place.namespace if served.namespaced else ""
        dry_run = request.query.get("dryRun") == "All"
        name = place.name or named_by(request.query)
        asked = Asked(verb, served.table, namespace, name, place.part, user, dry_run)
        self.asked.append(asked)
        if served.table not in _REVIEWS:
            self._check_rights(asked, place.group, place.plural)
        fault = self.faults(asked) or Fault()
        if fault.code:
            status = fault.status or Refused(fault.code, "", "a fault of this test").status
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            if fault.text:
                return web.Response(text=fault.text, status=fault.code, headers=headers)
            return answered(status, fault.code, headers)
        if asked.verb == "watch":
            options = WatchOptions(self.bookmark_seconds, self.offers_watch_list, self.expired_as_http)
            shown = self._shown_in_watch(request, served)
            return await self._watches.answer(request, served, namespace, fault, options, shown)
        answer = await self._do(request, served, asked)
        if fault.hang_seconds:
            await asyncio.sleep(fault.hang_seconds)
        if fault.cut:
            assert request.transport is not None
            request.transport.close()
        return answer

    def _check_rights(self, asked: Asked, group: str, plural: str) -> None:
        if not self.may(asked):
            where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
            named = f"{plural}/{asked.part}" if asked.part else plural
            what = f'User "{asked.user}" cannot {asked.verb} resource "{named}" in API group "{group}"{where}'
            of = f"{plural}.{group}" if group else plural
            of += f' "{asked.name}"' if asked.name else ""
            raise Refused(403, "Forbidden", f"{of} is forbidden: {what}", {"name": asked.name, "kind": plural})

    def _user(self, request: web.Request) -> str:
        if not self.tokens:
            return "admin"
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        user = self.tokens.get(token) if kind.lower() == "bearer" else None
        if user is None or self.store.seconds() >= self.expiry_unix_seconds.get(token, math.inf):
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    async def _do(self, request: web.Request, served: Served, asked: Asked) -> web.StreamResponse:
        if asked.verb == "list":
            return self._list(request, served, asked)
        if asked.verb == "get":
            if (asked.resource, asked.part) == ("pods", "log"):
                return await log_of(request, self.store, asked.namespace, asked.name, self.logs)
            return self._shown(request, served, self.store.get(served.table, asked.namespace, asked.name))
        body = await body_of(request) if request.can_read_body else {}
        return self._write(request, served, asked, body)

    def _list(self, request: web.Request, served: Served, asked: Asked) -> web.Response:
        found = listed(self.store, served, asked.namespace, request.query)
        if not wants_table(request.headers.get("Accept", "")):
            text = self._encoded.list_of(served.table, found)
            return web.Response(body=text, content_type="application/json")
        include = request.query.get("includeObject", "Metadata")
        return answered(table_of(served, found["items"], found["metadata"], self.store.seconds(), include))

    def _write(self, request: web.Request, served: Served, asked: Asked, body: Any) -> web.Response:
        query, writer, code = request.query, self.writer, 200
        agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
        unknown: list[str] = []
        if asked.verb == "delete":
            found = writer.delete(asked, body, query)
        elif asked.verb == "deletecollection":
            items = writer.delete_all(served, asked, body, query)
            metadata = {"resourceVersion": str(self.store.version)}
            found = {"kind": f"{served.kind}List", "metadata": metadata, "items": items}
        elif asked.verb == "patch":
            found, unknown, new = writer.patch(served, asked, body, request.content_type, query, agent)
            code = 201 if new else 200
        elif not isinstance(body, dict):
            raise Refused(400, "BadRequest", "the body is no object")
        elif served.table in _REVIEWS:
            found, code = reviewed(body, asked.user, self.may), 201
        elif asked.part in ("binding", "eviction"):
            if asked.part == "binding":
                writer.bind(asked, body)
            else:
                writer.delete(asked, body.get("deleteOptions"), query)
            found = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            code = 201
        elif asked.verb == "create":
            found, unknown = writer.create(served, asked, body, query, agent)
            code = 201
        else:
            found, unknown = writer.replace(served, asked, body, query, agent)
        return self._shown(request, served, found, code, unknown)

    def _shown(
        self, request: web.Request, served: Served, found: Json, code: int = 200, unknown: list[str] | None = None
    ) -> web.Response:
        if request.method == "GET" and wants_table(request.headers.get("Accept", "")):
            include = request.query.get("includeObject", "Metadata")
            return answered(table_of(served, [found], {}, self.store.seconds(), include))
        response = answered({"kind": served.kind, "apiVersion": served.api_version, **found}, code)
        for each in unknown or ():
            response.headers.add("Warning", f'299 - "unknown field \\"{each}\\""')
        return response

    def _shown_in_watch(self, request: web.Request, served: Served) -> Callable[[Json], Json]:
        include = request.query.get("includeObject", "Metadata")
        if not wants_table(request.headers.get("Accept", "")):
            return lambda found: {"kind": served.kind, "apiVersion": served.api_version, **found}
        return lambda found: table_of(served, [found], {}, self.store.seconds(), include)
