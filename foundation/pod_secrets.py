"""Secrets in the namespace of this program's pod, by the Kubernetes API: what a program makes once and others read.

It needs nothing but the token and the authority of a pod's service account, and no client for Kubernetes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final

from foundation.errors import BAD_INPUT, UNREACHABLE, ExpectedError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its service account's token, `ca.crt` and `namespace`."""
_SECONDS = 30.0
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class BadSecretName(ExpectedError):
    """No Secret, or nothing in one, can have this name. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class NotInPod(ExpectedError):
    """No service account is mounted here. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class ApiServerAway(ExpectedError):
    """The API server does not answer, or not now. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE


class SecretRefused(ExpectedError):
    """The API server refuses. Exit code 1."""


class PodSecrets:
    """The Secrets of one namespace, as the pod's service account may read and write them.

    Args:
        account: the folder that the service account is mounted at.

    Raises:
        NotInPod: a file or variable is missing.
    """

    def __init__(self, account: Path, environment: Mapping[str, str]) -> None:
        self._account = account
        import ssl  # noqa: PLC0415  (help and refusals of the programs do without)

        try:
            self._host, self._port = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
            self.namespace = (account / "namespace").read_text(encoding="utf-8").strip()
            self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except (KeyError, ValueError, OSError) as error:
            raise NotInPod(
                f"{account}: no service account can be used here ({error}); run this in a pod whose account's token is "
                "mounted, or name its folder with --account"
            ) from error

    def read(self, name: str) -> dict[str, bytes] | None:
        """What a Secret holds; None where it is not there.

        Raises:
            ApiServerAway, SecretRefused: it cannot be read.
        """
        status, answer = self._ask("GET", name, None)
        if status == HTTPStatus.NOT_FOUND:
            return None
        self._check(status, answer, name, "get")
        return {key: base64.b64decode(value) for key, value in (answer.get("data") or {}).items()}

    def make(self, name: str, content: Mapping[str, bytes]) -> bool:
        """Make a Secret; False where there is one already, which stays as it is.

        Raises:
            ApiServerAway, SecretRefused: it cannot be made.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": name},
            "data": _encoded(content),
        }
        status, answer = self._ask("POST", "", body)
        if status == HTTPStatus.CONFLICT:
            return False
        self._check(status, answer, name, "create")
        return True

    def put(self, name: str, content: Mapping[str, bytes]) -> bool:
        """See that a Secret holds this, whatever else it holds; whether that changed anything.

        Raises:
            ApiServerAway, SecretRefused: it cannot be read or written.
        """
        there = self.read(name)
        if there is None and self.make(name, content):
            return True
        if there is not None and content.items() <= there.items():
            return False
        status, answer = self._ask("PATCH", name, {"data": _encoded(content)})
        self._check(status, answer, name, "patch")
        return True

    def _ask(self, method: str, name: str, body: Mapping[str, object] | None) -> tuple[int, dict[str, Any]]:
        import http.client  # noqa: PLC0415

        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        path = f"/api/v1/namespaces/{self.namespace}/secrets" + (f"/{name}" if name else "")
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_SECONDS, context=self._tls)
        try:
            token = (self._account / "token").read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiServerAway(
                f"API server {self._host}:{self._port}: does not answer ({error}); see that this pod may call it"
            ) from error
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        return reply.status, answer if isinstance(answer, dict) else {"message": text.decode(errors="replace")[:200]}

    def _check(self, status: int, answer: Mapping[str, Any], name: str, verb: str) -> None:
        if status < HTTPStatus.BAD_REQUEST:
            return
        message = " ".join(str(answer.get("message") or "no reason given").split())
        where = f"secret {name} in namespace {self.namespace}: {status}, {message}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise ApiServerAway(f"{where}; come again")
        raise SecretRefused(f"{where}; give this pod's service account the right to {verb} it")


def check_names(secret: str, key: str = "key") -> None:
    """See that a Secret can have this name, and something in it the other one.

    Raises:
        BadSecretName: it cannot.
    """
    for name, form in ((secret, _NAME), (key, _KEY)):
        if not form.fullmatch(name):
            raise BadSecretName(
                f"{name[:80]!r}: no Secret can have this name; use lower-case letters, digits, - and ."
                if form is _NAME
                else f"{name[:80]!r}: nothing in a Secret can have this name; use letters, digits, -, _ and ."
            )


def _encoded(content: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in content.items()}
