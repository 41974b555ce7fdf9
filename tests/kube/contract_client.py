"""A client of the contract suite: plain HTTP, without any code of ours in between."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

Json = dict[str, Any]
MAPS = "configmaps"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Server:
    """A server as a test sees it; each test has a namespace of its own."""

    def __init__(self, address: str, token: str = "") -> None:
        self.address = address
        self.headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        # The certificate of a server that a test started is its own word.
        self.tls = ssl._create_unverified_context()
        code, found = self.ask("POST", "/api/v1/namespaces", {"metadata": {"generateName": "contract-"}})
        assert code == 201
        self.namespace = found["metadata"]["name"]

    def open(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", accept: str = "application/json"
    ) -> Any:
        if not path.startswith("/"):
            path = f"/api/v1/namespaces/{self.namespace}/{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": kind, "Accept": accept}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=30, context=self.tls)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Json]:
        try:
            with self.open(method, path, body, kind) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read()
            try:
                return error.code, json.loads(said)
            except ValueError:  # of a resource that is not served yet, and under flow control: a line of plain text
                return error.code, {"message": said.decode()}

    def apply(self, path: str, config: Json, manager: str = "one", *, force: bool = False) -> tuple[int, Json]:
        query = f"fieldManager={manager}" + ("&force=true" if force else "")
        return self.ask("PATCH", f"{path}?{query}", config, APPLY)

    def table(self, path: str) -> Json:
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        with self.open("GET", path, accept=accept) as answer:
            found: Json = json.load(answer)
            return found

    def make(self, name: str, **more: Any) -> Json:
        code, found = self.ask("POST", MAPS, {"metadata": {"name": name, **more}, "data": {"a": "1"}})
        assert code == 201
        return found

    def watch(self, query: str, events: int) -> list[Json]:
        """The first events of a watch; fewer where it ends before."""
        found = []
        with self.open("GET", f"{MAPS}?watch=1&{query}") as answer:
            for line in answer:
                found.append(json.loads(line))
                if len(found) == events:
                    break
        return found


def version(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"])


def causes(status: Json) -> list[str]:
    """Fields that a refusal names."""
    return [each["field"] for each in status["details"]["causes"]]
