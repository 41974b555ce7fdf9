"""Logs of pods, from the file that their process writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from apiserver.controllers.stepping import has_ended
from apiserver.store import Refused, Store

Json = dict[str, Any]
_POLL_SECONDS = 0.1


async def log_of(
    request: web.Request, store: Store, namespace: str, name: str, file_of: Callable[[Json], Path] | None
) -> web.StreamResponse:
    """What a pod has said, and with `follow` what it says until it has ended.

    Raises:
        Refused: 404, there is no such pod; 400, it has no log.
    """
    pod = store.get("pods", namespace, name)
    if file_of is None:
        raise Refused(400, "BadRequest", f"no log of pod {name}: its containers are not real")
    container = request.query.get("container", "")
    if container and container not in [each["name"] for each in pod["spec"]["containers"]]:
        raise Refused(400, "BadRequest", f"container {container} is not valid for pod {name}")
    statuses = (pod.get("status") or {}).get("containerStatuses")
    if not statuses or ((waiting := statuses[0]["state"].get("waiting")) and not statuses[0]["lastState"]):
        reason = waiting["reason"] if statuses else "ContainerCreating"
        first = pod["spec"]["containers"][0]["name"]
        line = f'container "{first}" in pod "{name}" is waiting to start: {reason}'
        raise Refused(400, "BadRequest", line)
    path, lines = file_of(pod), request.query.get("tailLines")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    at = 0
    while True:
        found = store.objects["pods"].get((namespace, name))
        last = found is None or has_ended(found) or request.query.get("follow") not in ("1", "true")
        text = path.read_bytes()[at:] if path.exists() else b""
        at += len(text)
        if lines is not None:
            text, lines = b"".join(text.splitlines(keepends=True)[-int(lines) :]), None
        with contextlib.suppress(ConnectionResetError):
            await response.write(text)
        if last:
            return response
        await asyncio.sleep(_POLL_SECONDS)
