"""Access to an API server: which, as whom, over which TLS; all of it as the official client reads it.

The client brings kubeconfig files, tokens that a service account gets anew, and commands that fetch credentials. Its
typed objects are not used: decoding 10,000 pods into them takes 17.6 s of CPU, as JSON 0.35 s (docs/decisions/0051).
"""

from __future__ import annotations

import base64
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from cluster_agent.errors import BadAgentConfig
from foundation.followed_files import Content, FollowedFiles
from foundation.text import parse_json
from policy_net.exchange.secrets_in_use import (
    NO_CERTIFICATE,
    SecretInUse,
    Validity,
    shown_moment,
    validity_of,
)

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN, _AUTHORITY, _POD_NAMESPACE = _ACCOUNT / "token", _ACCOUNT / "ca.crt", _ACCOUNT / "namespace"

_MOST_CONTEXTS = 8
"""Named where another was asked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where credentials come from.

    Attributes:
        kubeconfig: a file; the pod's service account unless set or $KUBECONFIG says one, ~/.kube/config outside a pod.
        context: of the file; its current one where empty.
    """

    kubeconfig: Path | None = None
    context: str = ""


def open_client(access: Access) -> ApiClient:
    """The official client with its connection and credentials as they are now; nothing is sent yet.

    Raises:
        BadAgentConfig: there is no such file, context or service account, or it cannot be used.
    """
    return _opened(access, _chosen(access), None).client


def follow_client(
    access: Access,
    on_replaced: Callable[[OpenedClient], None],
    on_refused: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    unix_clock: Callable[[], float] = time.time,
) -> FollowedFiles[OpenedClient]:
    """The same, opened anew when the kubeconfig or a file that it names changes: token, certificate, key, authority.

    What cannot be used leaves the client before in force, and so does another server.

    Args:
        on_replaced: called with each client that takes the place of another one.
        on_refused: called, once for each reason, with why the files that are there now are not used.
        clock: seconds that never go back.
        unix_clock: seconds by which certificates hold.

    Raises:
        BadAgentConfig: at the start: as `open_client`.
    """
    chosen = _chosen(access)
    first: OpenedClient | None = None

    def make(content: Content) -> OpenedClient:
        nonlocal first
        if first is None:
            first = _opened(access, chosen, content)
            return first
        # The context stays the one of the start: somebody who turns to another one must not take an agent along.
        found = _opened(access, replace(chosen, context=first.context or None), content)
        if found.address != first.address:
            raise BadAgentConfig(
                f"kubernetes: {chosen.where} names another server now, {found.address} in place of {first.address}: "
                "start the agent again to look after that one"
            )
        for validity, what in ((found.certificate, "client certificate"), (found.token, "token")):
            if 0.0 < validity.ends_unix_seconds <= unix_clock():
                ended = shown_moment(validity.ends_unix_seconds)
                raise BadAgentConfig(f"kubernetes: the {what} of {chosen.where} has expired, on {ended}")
        return found

    return FollowedFiles(make, BadAgentConfig, on_replaced, on_refused, clock=clock)


def clients_of_command(access: Access, on_refused: Callable[[str], None]) -> Callable[[], ApiClient]:
    """What gives the client for each request of a command; one that watches may outlive its token.

    Raises:
        BadAgentConfig: as `open_client`.
    """
    if access.kubeconfig is not None and access.kubeconfig.is_fifo():  # such as `--kubeconfig <(…)`: it is read once
        client = open_client(access)
        return lambda: client
    followed = follow_client(access, lambda _: None, on_refused)
    return lambda: followed.current().client


def secrets_of(followed: FollowedFiles[OpenedClient]) -> list[SecretInUse]:
    """What a followed client shows and trusts."""

    def refusal() -> str:
        return followed.refusal

    return [
        SecretInUse("kubernetes", lambda: followed.value.certificate, refusal),
        SecretInUse("kubernetes-token", lambda: followed.value.token, refusal),
        SecretInUse("kubernetes-authority", lambda: followed.value.authority, refusal),
    ]


@dataclass(frozen=True, slots=True)
class OpenedClient:
    """The official client, and until when the certificate and token that it shows, and the authority it trusts, hold.

    `NO_CERTIFICATE` stands for what there is none of, or what does not say when it ends.
    """

    client: ApiClient
    address: str
    context: str = ""
    certificate: Validity = NO_CERTIFICATE
    token: Validity = NO_CERTIFICATE
    authority: Validity = NO_CERTIFICATE


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is opened: the pod's service account, or a context of files; their current one where it is None."""

    in_pod: bool
    where: str
    context: str | None


def _chosen(access: Access) -> _Chosen:
    in_pod = access.kubeconfig is None and "KUBECONFIG" not in os.environ and _TOKEN.exists()
    usual = os.environ.get("KUBECONFIG") or "~/.kube/config"
    where = "the pod's service account" if in_pod else str(access.kubeconfig or usual)
    if in_pod:
        return _Chosen(in_pod, where, None)
    if not any(path.exists() for path in _files_of(where)):
        raise BadAgentConfig(
            f"kubernetes: {where} cannot be used: there is no such file; name a kubeconfig with --kubeconfig, "
            "$KUBECONFIG or backend.kubeconfig"
        )
    return _Chosen(in_pod, where, access.context or None)


def _files_of(where: str) -> list[Path]:
    return [Path(file).expanduser() for file in where.split(os.pathsep) if file]


def _opened(access: Access, chosen: _Chosen, followed: Content | None) -> OpenedClient:
    """Open a client; `followed` reads the files that it is made of, and is None where that is done once, as of a pipe.

    Raises:
        BadAgentConfig: as `open_client`.
    """
    # Not at the top: hundreds of models come along, which an agent of another backend never needs.
    from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
    from kubernetes.config import ConfigException  # noqa: PLC0415

    configuration = Configuration()
    # Whoever asks knows whether a request may be sent twice; urllib3 does not.
    configuration.retries = False
    where = chosen.where
    try:
        content = followed or Path.read_bytes
        if chosen.in_pod:
            context, token, named = "", _set_pods_account(configuration, content), {str(_AUTHORITY)}
        else:
            if followed is not None:
                for path in filter(Path.exists, _files_of(where)):
                    followed(path)
            context, token, named = _set_context(configuration, chosen, content)
        client = ApiClient(configuration)
        certificate, authority = _hold_certificates(
            client, configuration, lambda path: content(path) if str(path) in named else path.read_bytes()
        )
    except RecursionError as error:
        raise BadAgentConfig(f"kubernetes: {where} cannot be used: it is nested too deeply") from error
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        missing = None if chosen.in_pod or not access.context else _missing_context(where, access.context)
        reason = missing or " ".join(str(error).split()) or type(error).__name__
        raise BadAgentConfig(f"kubernetes: {where} cannot be used: {reason}") from error
    return OpenedClient(client, str(configuration.host), context, certificate, token, authority)


def _set_pods_account(configuration: Configuration, content: Content) -> Validity:
    from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

    InClusterConfigLoader(str(_TOKEN), str(_AUTHORITY), try_refresh_token=False).load_and_set(configuration)
    return _set_token(configuration, _TOKEN, content)


def _set_context(configuration: Configuration, chosen: _Chosen, content: Content) -> tuple[str, Validity, set[str]]:
    """Set server and user of the context.

    Returns:
        The context's name, the token's validity, and those of the configuration's files of certificates that the
        kubeconfig names; the others are the official client's own copies of what it holds itself.
    """
    from kubernetes.config import ConfigException  # noqa: PLC0415
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: PLC0415

    config = KubeConfigMerger(chosen.where).config
    if config is None:
        raise ConfigException("it is empty")
    context = chosen.context or str(config["current-context"])
    KubeConfigLoader(config, active_context=context, config_base_path=None).load_and_set(configuration)
    names = config["contexts"].get_with_name(context)["context"]
    cluster = config["clusters"].get_with_name(names["cluster"]).value.get("cluster") or {}
    found = config["users"].get_with_name(names["user"], safe=True)
    user = (None if found is None else found.value.get("user")) or {}
    files = {
        configuration.ssl_ca_cert: (cluster, "certificate-authority"),
        configuration.cert_file: (user, "client-certificate"),
        configuration.key_file: (user, "client-key"),
    }
    named = {str(file) for file, (entry, key) in files.items() if entry.get(key) and f"{key}-data" not in entry}
    token_file = user.get("tokenFile")
    if found is None or not token_file or user.get("token") or "auth-provider" in user:
        return context, NO_CERTIFICATE, named
    return context, _set_token(configuration, Path(found.path).absolute().parent / str(token_file), content), named


def _set_token(configuration: Configuration, path: Path, content: Content) -> Validity:
    token = content(path).decode("ascii").strip()
    if not token or not token.isprintable():
        raise ValueError(f"{path} holds no token")
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    configuration.refresh_api_key_hook = None  # what is read anew is read here
    return _validity_of_token(token)


def _validity_of_token(token: str) -> Validity:
    """When a service account's token begins and ends, as it says; nothing of one of another kind."""
    try:
        claims = parse_json(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return Validity(float(claims.get("iat", 0.0)), float(claims["exp"]))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return NO_CERTIFICATE


def _hold_certificates(client: ApiClient, configuration: Configuration, content: Content) -> tuple[Validity, Validity]:
    """Give a client the certificates as they are now, for each connection that it will make; until when they hold.

    By itself it reads the files at each connection, and so would meet them half replaced.
    """
    from urllib3.util.ssl_ import create_urllib3_context  # noqa: PLC0415  (the official client has it)

    if not str(configuration.host).startswith("https"):
        return NO_CERTIFICATE, NO_CERTIFICATE
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
    certificate = authority = NO_CERTIFICATE
    if configuration.ssl_ca_cert:
        path = Path(configuration.ssl_ca_cert)
        try:
            context.load_verify_locations(cadata=content(path).decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"{path} holds no certificates (PEM)") from error
        authority = _authority_validity(context)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        files = [Path(file) for file in (configuration.cert_file, configuration.key_file) if file]
        pem, *_ = [content(path) for path in files]
        certificate = _certificate_validity(pem)
        try:
            context.load_cert_chain(*map(str, files))
        except ssl.SSLError as error:
            raise ValueError(
                f"{' and '.join(map(str, files))} are no certificate and its key ({error.reason})"
            ) from error
    pools = client.rest_client.pool_manager.connection_pool_kw
    pools.update(ssl_context=context, ca_certs=None, cert_file=None, key_file=None)
    return certificate, authority


def _authority_validity(context: ssl.SSLContext) -> Validity:
    moments = [
        Validity(*(ssl.cert_time_to_seconds(str(each[name])) for name in ("notBefore", "notAfter")))
        for each in context.get_ca_certs()
    ]
    return max(moments, key=lambda each: each.ends_unix_seconds, default=NO_CERTIFICATE)


def _certificate_validity(pem: bytes) -> Validity:
    """What a certificate says that OpenSSL takes, and may be odd all the same."""
    from cryptography import x509  # noqa: PLC0415  (of those alone who show a certificate)

    try:
        return validity_of(x509.load_pem_x509_certificate(pem))
    except (ValueError, x509.InvalidVersion):
        return NO_CERTIFICATE


def pod_namespace() -> str:
    """The namespace of the pod that this runs in; empty outside a pod."""
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _missing_context(where: str, context: str) -> str | None:
    """That the file has no such context, and which it has; None where that is not what is wrong."""
    from kubernetes.config import ConfigException, list_kube_config_contexts  # noqa: PLC0415

    try:
        contexts, _ = list_kube_config_contexts(where)
        names = [str(each["name"]) for each in contexts]
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError):
        return None  # something else is wrong, which is said in its own words
    shown = ", ".join(names[:_MOST_CONTEXTS]) + (" …" if len(names) > _MOST_CONTEXTS else "")
    there = f"is {shown}" if len(names) == 1 else f"are {shown}"
    return None if context in names else f"it has no context {context}; there {there}"
