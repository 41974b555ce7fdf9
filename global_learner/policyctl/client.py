"""Client of a learner's `Admin` service; gRPC's errors become `Unreachable`, or the learner's own line."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from foundation.errors import ExpectedError
from foundation.followed_files import Content, FollowedFiles
from foundation.text import plain_line
from global_learner.errors import (
    BadLearnerConfig,
    BadRequest,
    ChangedSince,
    IdentityRefused,
    LearnerError,
    RolloutRefused,
    StateUnusable,
    Unknown,
    Unreachable,
)
from global_learner.operator_socket import SCHEME, SocketAddress
from global_learner.policyctl.contexts import check_address
from policy_net.exchange.connection_files import plain_content, read_connection_files
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import read_identity
from policy_net.exchange.other_server import NO_CONNECTION, Spoken, handshake_reason, spoken_at

if TYPE_CHECKING:
    from policy_net.exchange.policy_file import PolicyFile

_LARGEST_REPLY_BYTES = 256 * 1024 * 1024
"""A fleet of a thousand clusters and ten thousand versions takes a few megabytes."""
LATEST = "latest"
"""The newest version, as it is asked for."""
_SHOWN_ALIASES = 10
_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_REFUSALS: dict[grpc.StatusCode, type[LearnerError]] = {
    grpc.StatusCode.NOT_FOUND: Unknown,
    grpc.StatusCode.INVALID_ARGUMENT: BadRequest,
    grpc.StatusCode.PERMISSION_DENIED: IdentityRefused,
    grpc.StatusCode.ABORTED: ChangedSince,
}

_OF_ROLLOUTS = frozenset({"RollBack", "StartRollout", "ActOnRollout"})
"""Calls that a rollout's state may forbid."""
_KNOWS_DRY_RUN = {
    "AssignVersion": "away_seconds",
    "ResetHead": "away_seconds",
    "RevokeCluster": "away_seconds",
    "RevokeOperator": "tries_people",
}
"""Calls whose `dry_run` is newer than they are, with the field of a fleet's reply by which a learner that knows it is
told from an older one, which would ignore the word and act."""

_START = "start it, or name another one with --learner"
_OTHER_PORT = "name the HOST:PORT of a learner's `listen` with --learner"
_REMEDIES = {
    (Spoken.HTTP, True): _OTHER_PORT,
    (Spoken.HTTP, False): _OTHER_PORT,
    (Spoken.HTTPS, True): _OTHER_PORT,
    (Spoken.HTTPS, False): _OTHER_PORT,
    (Spoken.OPEN_TLS, False): f"{_OTHER_PORT}; if it is that, name your identity file with --cert",
    (Spoken.TLS, False): "name your identity file with --cert",
    (Spoken.TLS, True): "name those of this learner with --cert, or with --ca, --cert and --key",
    (Spoken.PLAIN, True): "leave out --cert, --key and --ca (and FEDL2_CERT)",
}
"""By what is spoken at a port, and whether certificates were shown; else the learner is what is missing."""
_NOT_FOR_OPERATORS = (
    "what listens there takes no operator's commands, as a learner's enrollment port (identity.enroll_port) does; "
    f"{_OTHER_PORT}"
)
"""Of a server that answers by gRPC, and does not know the oldest of all calls."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a connection; a certificate alone is an identity file, and nothing at all means plain text."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class AdminClient:
    """The learner's `Admin` service at an address."""

    def __init__(self, address: str, tls: TlsFiles | ShownFiles, timeout_seconds: float) -> None:
        """Open a channel; nothing is sent yet.

        Raises:
            BadConfig, IdentityFileError: a file cannot be read or used.
        """
        local = check_address(address)
        self._address = address
        self._timeout_seconds = timeout_seconds
        options = [
            ("grpc.max_receive_message_length", _LARGEST_REPLY_BYTES),
            ("grpc.enable_retries", 0),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # what is measured is then what is unpacked
        ]
        # At its socket the learner knows its owner by the file's mode; a certificate in the environment is for others.
        shown = None if local else tls.credentials() if isinstance(tls, ShownFiles) else credentials(tls)
        self._certified = shown is not None
        self._socket = SocketAddress(Path(address.removeprefix(SCHEME))) if local else None
        target = address if self._socket is None else self._socket.target
        if shown is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, shown, options)
        self._admin = fleet_pb2_grpc.AdminStub(self._channel)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()
        if self._socket is not None:
            self._socket.close()

    def ask(self, request: Message) -> Any:
        """The learner's answer to a request.

        Raises:
            Unreachable: no learner answers.
            BadConfig: the learner is too old for a dry run.
            LearnerError: its refusal, by kind.
        """
        name = type(request).__name__.removesuffix("Request")
        known_by = _KNOWS_DRY_RUN.get(name) if getattr(request, "dry_run", False) else None
        if known_by is not None and not getattr(self.fleet(), known_by):
            raise BadLearnerConfig(
                "this learner is of a version that knows no --dry-run here and would do it; upgrade it first"
            )
        return self._call(name, request)

    def fleet(self) -> fleet_pb2.GetFleetReply:
        """All clusters, and the head."""
        reply: fleet_pb2.GetFleetReply = self.ask(fleet_pb2.GetFleetRequest())
        return reply

    def versions(self) -> list[fleet_pb2.VersionCard]:
        """All cards, oldest first."""
        return list(self.ask(fleet_pb2.ListVersionsRequest()).versions)

    def policy_file(self, card: fleet_pb2.VersionCard) -> PolicyFile | None:
        """A version's policy file, checked against its card; None if it is no longer kept.

        Raises:
            StateUnusable: it is not what the card says.
        """
        if not card.kept:
            return None
        data = self.ask(fleet_pb2.FetchPolicyRequest(version=card.version)).policy_file
        # Brings NumPy and pydantic, and most commands ask for no file.
        from policy_net.exchange.policy_file import digest_of, parse_policy_file  # noqa: PLC0415

        found = digest_of(data)
        if found != card.digest:
            raise StateUnusable(
                f"v{card.version} as the learner sent it: its digest is {found}, expected {card.digest}; ask again"
            )
        return parse_policy_file(data, f"v{card.version}")

    def number_of(self, version: int | str) -> int:
        """Number of a version: of `latest`, an alias, or a number, which is not looked up; Unknown is no alias."""
        if isinstance(version, int):
            return version
        if version == LATEST:
            return int(self.fleet().latest_version)
        cards = self.versions()
        for card in cards:
            if version in card.aliases:
                return int(card.version)
        known = sorted(alias for card in cards for alias in card.aliases)
        near = difflib.get_close_matches(version, [*known, LATEST], 1)
        advice = f"did you mean {near[0]}?" if near else f"use a number such as 3 or v3, or `{LATEST}`"
        there_are = ", ".join(known[:_SHOWN_ALIASES]) or "none yet"
        raise Unknown(f"no version has the alias {version!r} (there are: {there_are}); {advice}")

    def _call(self, name: str, request: Message) -> Any:
        try:
            return getattr(self._fleet if name == "FetchPolicy" else self._admin, name)(
                request, timeout=self._timeout_seconds
            )
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code in _UNREACHABLE:
                raise Unreachable(f"no learner answers at {self._address}: {self._why(code, f'{details}')}") from error
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise self._unknown_call() from error
            if code is grpc.StatusCode.FAILED_PRECONDITION and name in _OF_ROLLOUTS:
                raise RolloutRefused(f"{details}") from error
            raise _REFUSALS.get(code, LearnerError)(f"{details}") from error

    def _unknown_call(self) -> LearnerError:
        try:
            self._admin.GetFleet(fleet_pb2.GetFleetRequest(), timeout=self._timeout_seconds)  # learners always knew it
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return Unreachable(f"no learner answers at {self._address}: {_NOT_FOR_OPERATORS}")
        return LearnerError("this learner is of an earlier version, which does not know this command; upgrade it first")

    def _why(self, code: grpc.StatusCode, details: str) -> str:
        if code is grpc.StatusCode.UNAVAILABLE and not details.startswith(NO_CONNECTION):
            return f"{details}; wait, or name another one with --learner"  # a learner's own words
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"nothing came within {self._timeout_seconds:g} s; {_START}"
        if self._socket is not None:
            if not self._socket.path.exists():
                return "there is no such socket; is that the learner's state_dir? Or name another one with --learner"
            return f"there is no learner behind that socket; {_START}"
        return self._what_is_there(details)

    def _what_is_there(self, details: str) -> str:
        """The server that answers instead of a learner: another port was meant, or a certificate is missing."""
        host, _, port = self._address.rpartition(":")
        found = spoken_at(host.strip("[]"), int(port), self._timeout_seconds)
        if found is Spoken.OPEN_TLS and self._certified:  # it is its certificate that was not taken
            found = Spoken.TLS
        remedy = _REMEDIES.get((found, self._certified), _START)
        if found is Spoken.TLS and self._certified:
            return f"{found}, but not with these certificates ({handshake_reason(details)}); {remedy}"
        if found is Spoken.PLAIN and not self._certified:
            waited, why = f"{self._timeout_seconds:g} s", plain_line(details, 200)
            return f"what listens there gave no answer within {waited} ({why}); {remedy}"
        return f"{found}; {remedy}"


class ShownFiles:
    """Credentials of a watch's connections: from the files as they are, or as they were when they could last be used.

    Args:
        on_refused: called with the reason why replaced files are not used.
    """

    def __init__(self, tls: TlsFiles, on_refused: Callable[[str], None]) -> None:
        self._tls, self._on_refused = tls, on_refused
        self._followed: FollowedFiles[grpc.ChannelCredentials | None] | None = None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Credentials of the next connection; None for plain text. The first time it raises what `credentials` does.

        Raises:
            BadConfig, IdentityFileError: the first time: a file cannot be used.
        """
        if self._followed is None:
            self._followed = FollowedFiles(
                lambda content: credentials(self._tls, content),
                ExpectedError,
                on_refused=self._on_refused,
                poll_seconds=0.0,
            )
        return self._followed.current()


def credentials(tls: TlsFiles, content: Content | None = None) -> grpc.ChannelCredentials | None:
    """Credentials from files, which `content` reads; None for plain text.

    Raises:
        BadConfig, IdentityFileError: a file cannot be used.
    """
    if tls.ca is not None:
        files = read_connection_files(tls.ca, tls.certificate, tls.key, content or plain_content)
        return grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)
    if tls.key is not None:
        raise BadLearnerConfig("--key needs --ca and --cert beside it; or give an identity file as --cert, alone")
    if tls.certificate is None:
        return None
    own = read_identity(tls.certificate, content)
    return grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
