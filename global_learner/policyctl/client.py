"""Client of a learner's `Admin` service; gRPC's errors become `Unreachable`, or the learner's own line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from foundation.errors import ExpectedError
from foundation.followed_files import Content, FollowedFiles
from global_learner.errors import (
    BadConfig,
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
from policy_net.exchange.spoken import NO_CONNECTION

if TYPE_CHECKING:
    from policy_net.exchange.policy_file import PolicyFile
    from policy_net.exchange.signed_documents import SignedDocument

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

Request = TypeVar("Request")
Reply = TypeVar("Reply")


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

    def versions(self) -> list[fleet_pb2.VersionCard]:
        """All cards, oldest first."""
        return list(self._call(self._admin.ListVersions, fleet_pb2.ListVersionsRequest()).versions)

    def version(self, version: int) -> fleet_pb2.ShowVersionReply:
        """One version's card and spec."""
        reply: fleet_pb2.ShowVersionReply = self._call(
            self._admin.ShowVersion, fleet_pb2.ShowVersionRequest(version=version)
        )
        return reply

    def policy_file(self, card: fleet_pb2.VersionCard) -> PolicyFile | None:
        """A version's policy file, checked against its card; None if it is no longer kept.

        Raises:
            StateUnusable: it is not what the card says.
        """
        if not card.kept:
            return None
        request = fleet_pb2.FetchPolicyRequest(version=card.version)
        data = self._call(self._fleet.FetchPolicy, request).policy_file
        # Brings NumPy and pydantic, and most commands ask for no file.
        from policy_net.exchange.policy_file import digest_of, parse_policy_file  # noqa: PLC0415

        found = digest_of(data)
        if found != card.digest:
            raise StateUnusable(
                f"v{card.version} as the learner sent it: its digest is {found}, expected {card.digest}; ask again"
            )
        return parse_policy_file(data, f"v{card.version}")

    def newest_version(self) -> int:
        """The number that `latest` stands for."""
        return int(self.fleet().latest_version)

    def pin(self, version: int, pinned: bool, reason: str) -> bool:
        """Keep a version, or no longer; False if it was so already."""
        request = fleet_pb2.PinVersionRequest(version=version, pinned=pinned, reason=reason)
        return bool(self._call(self._admin.PinVersion, request).changed)

    def note(self, version: int, text: str) -> bool:
        """Put a note on a version in the place of the one before; False if it was so already."""
        request = fleet_pb2.NoteVersionRequest(version=version, text=text)
        return bool(self._call(self._admin.NoteVersion, request).changed)

    def restore(self, version: int, file: bytes, reason: str) -> bool:
        """Put a version's file back; False if it was there, and whole."""
        request = fleet_pb2.RestoreVersionRequest(version=version, file=file, reason=reason)
        return bool(self._call(self._admin.RestoreVersion, request).changed)

    def publish(self, policy_file: bytes, note: str) -> fleet_pb2.VersionCard:
        """Make a policy that was trained elsewhere the next version; its card."""
        request = fleet_pb2.PublishVersionRequest(policy_file=policy_file, note=note)
        reply: fleet_pb2.PublishVersionReply = self._call(self._admin.PublishVersion, request)
        return reply.card

    def alias(self, alias: str, version: int, move: bool = False, reason: str = "") -> int:
        """Let a word mean a version, 0: none any more; which one it meant before, 0: none."""
        request = fleet_pb2.AliasVersionRequest(alias=alias, version=version, move=move, reason=reason)
        return int(self._call(self._admin.AliasVersion, request).from_version)

    def number_of(self, asked: int | str) -> int:
        """The number of the version that was asked for: `latest`, an alias, or a number, which is not looked up.

        Raises:
            Unknown: no version has the alias.
        """
        if isinstance(asked, int):
            return asked
        if asked == LATEST:
            return self.newest_version()
        cards = self.versions()
        for card in cards:
            if asked in card.aliases:
                return int(card.version)
        known = sorted(alias for card in cards for alias in card.aliases)
        near = difflib.get_close_matches(asked, [*known, LATEST], 1)
        advice = f"did you mean {near[0]}?" if near else f"use a number such as 3 or v3, or `{LATEST}`"
        there_are = ", ".join(known[:_SHOWN_ALIASES]) or "none yet"
        raise Unknown(f"no version has the alias {asked!r} (there are: {there_are}); {advice}")

    def assign(
        self,
        version: int,
        clusters: Sequence[str],
        every: bool,
        reason: str = "",
        dry_run: bool = False,
        seen: Mapping[str, int] | None = None,
    ) -> fleet_pb2.AssignVersionReply:
        """Let clusters act on a version; 0 takes that back.

        Args:
            seen: clusters with what each was to act on, compared by the learner; None: nothing is.

        Raises:
            ChangedSince: one is to act on something else by now.
        """
        self._check_knows_dry_run(dry_run)
        request = fleet_pb2.AssignVersionRequest(
            version=version, clusters=clusters, all=every, reason=reason, dry_run=dry_run, seen_versions=seen
        )
        reply: fleet_pb2.AssignVersionReply = self._call(self._admin.AssignVersion, request)
        return reply

    def _check_knows_dry_run(self, dry_run: bool, of_people: bool = False) -> None:
        """See that the learner would only say what would happen: one of before passes over the word, and does it.

        Args:
            of_people: what is asked for is about them.

        Raises:
            BadConfig: it is of such a version.
        """
        if not dry_run:
            return
        fleet = self.fleet()
        if not (fleet.tries_people if of_people else fleet.away_seconds):
            raise BadConfig(
                "this learner is of a version that knows no --dry-run here and would do it; upgrade it first"
            )

    def roll_back(
        self,
        clusters: Sequence[str],
        every: bool,
        reason: str,
        dry_run: bool,
        seen: Mapping[str, int] | None = None,
        just_looked: bool = False,
    ) -> fleet_pb2.RollBackReply:
        """Let clusters act on the version before; `seen` as for `assign`, which no person read if `just_looked`."""
        request = fleet_pb2.RollBackRequest(
            clusters=clusters, all=every, reason=reason, dry_run=dry_run, seen_versions=seen, just_looked=just_looked
        )
        reply: fleet_pb2.RollBackReply = self._call(self._admin.RollBack, request, RolloutRefused)
        return reply

    def start_rollout(self, version: int, plan_json: str, reason: str, dry_run: bool) -> fleet_pb2.StartRolloutReply:
        """Bring a version to the fleet in stages."""
        request = fleet_pb2.StartRolloutRequest(version=version, plan_json=plan_json, reason=reason, dry_run=dry_run)
        reply: fleet_pb2.StartRolloutReply = self._call(self._admin.StartRollout, request, RolloutRefused)
        return reply

    def rollout(self, number: int) -> fleet_pb2.Rollout:
        """One rollout; 0 is the latest."""
        request = fleet_pb2.GetRolloutRequest(number=number)
        reply: fleet_pb2.GetRolloutReply = self._call(self._admin.GetRollout, request)
        return reply.rollout

    def rollouts(self) -> list[fleet_pb2.Rollout]:
        """All rollouts, oldest first."""
        return list(self._call(self._admin.ListRollouts, fleet_pb2.ListRolloutsRequest()).rollouts)

    def act_on_rollout(
        self, action: str, cluster: str, dry_run: bool, reason: str = "", seen: fleet_pb2.Rollout | None = None
    ) -> fleet_pb2.ActOnRolloutReply:
        """Have a word in the latest rollout.

        Args:
            seen: as it stood, compared by the learner; None: nothing is.

        Raises:
            ChangedSince: it went on since.
        """
        stood = None
        if seen is not None:
            stood = fleet_pb2.SeenRollout(number=seen.number, event_number=seen.event_number)
        request = fleet_pb2.ActOnRolloutRequest(
            action=action, cluster=cluster, dry_run=dry_run, reason=reason, seen=stood
        )
        reply: fleet_pb2.ActOnRolloutReply = self._call(self._admin.ActOnRollout, request, RolloutRefused)
        return reply

    def reset_head(
        self, version: int, reason: str = "", dry_run: bool = False, seen_step: int | None = None
    ) -> fleet_pb2.ResetHeadReply:
        """Let the head go on from a version.

        Args:
            seen_step: the head's, compared by the learner; None: nothing is.

        Raises:
            ChangedSince: the head was reset since that step.
        """
        self._check_knows_dry_run(dry_run)
        request = fleet_pb2.ResetHeadRequest(version=version, reason=reason, dry_run=dry_run, seen_step=seen_step)
        reply: fleet_pb2.ResetHeadReply = self._call(self._admin.ResetHead, request)
        return reply

    def keys(self) -> fleet_pb2.GetKeysReply:
        """Which keys sign for the fleet."""
        reply: fleet_pb2.GetKeysReply = self._call(self._admin.GetKeys, fleet_pb2.GetKeysRequest())
        return reply

    def rotate_key(self, role: str, root: SignedDocument | None, seen_root: int = 0) -> fleet_pb2.RotateKeyReply:
        """A new key in a role's place, signed by the learner, or elsewhere.

        Args:
            seen_root: number of the newest root, compared by the learner; 0: it is not.

        Raises:
            ChangedSince: there is a newer root by now.
        """
        request = fleet_pb2.RotateKeyRequest(
            role=role, root=None if root is None else root.message(), seen_root=seen_root
        )
        reply: fleet_pb2.RotateKeyReply = self._call(self._admin.RotateKey, request)
        return reply

    def audit(self, since_unix_seconds: float) -> list[fleet_pb2.AuditEntry]:
        """The audit log from a moment on, oldest first."""
        request = fleet_pb2.ListAuditRequest(since_unix_seconds=since_unix_seconds)
        return list(self._call(self._admin.ListAudit, request).entries)

    def fleet(self) -> fleet_pb2.GetFleetReply:
        """All clusters, and the head."""
        reply: fleet_pb2.GetFleetReply = self._call(self._admin.GetFleet, fleet_pb2.GetFleetRequest())
        return reply

    def report(self) -> fleet_pb2.GetReportReply:
        """Everything that the report shows."""
        reply: fleet_pb2.GetReportReply = self._call(self._admin.GetReport, fleet_pb2.GetReportRequest())
        return reply

    def enroll_cluster(self, cluster: str) -> fleet_pb2.EnrollClusterReply:
        """A one-time token for a cluster's name."""
        request = fleet_pb2.EnrollClusterRequest(cluster=cluster)
        reply: fleet_pb2.EnrollClusterReply = self._call(self._admin.EnrollCluster, request)
        return reply

    def clusters(self) -> list[fleet_pb2.ClusterIdentity]:
        """Every cluster's status, by name."""
        return list(self._call(self._admin.ListClusters, fleet_pb2.ListClustersRequest()).clusters)

    def revoke_cluster(self, cluster: str, reason: str = "", dry_run: bool = False) -> fleet_pb2.RevokeClusterReply:
        """Turn a cluster out."""
        self._check_knows_dry_run(dry_run)
        request = fleet_pb2.RevokeClusterRequest(cluster=cluster, reason=reason, dry_run=dry_run)
        reply: fleet_pb2.RevokeClusterReply = self._call(self._admin.RevokeCluster, request)
        return reply

    def enroll_operator(self, name: str, role: str, signing_request: bytes) -> fleet_pb2.EnrollOperatorReply:
        """A certificate for a person."""
        request = fleet_pb2.EnrollOperatorRequest(name=name, role=role, signing_request=signing_request)
        reply: fleet_pb2.EnrollOperatorReply = self._call(self._admin.EnrollOperator, request)
        return reply

    def operators(self) -> list[fleet_pb2.OperatorIdentity]:
        """People, by name."""
        return list(self._call(self._admin.ListOperators, fleet_pb2.ListOperatorsRequest()).operators)

    def revoke_operator(self, name: str, reason: str = "", dry_run: bool = False) -> int:
        """Turn a person out; how many certificates are good until then."""
        self._check_knows_dry_run(dry_run, of_people=True)
        request = fleet_pb2.RevokeOperatorRequest(name=name, reason=reason, dry_run=dry_run)
        return int(self._call(self._admin.RevokeOperator, request).certificates)

    def forget_cluster(self, cluster: str, reason: str = "", dry_run: bool = False) -> fleet_pb2.ForgetClusterReply:
        """List a cluster no longer that was turned out."""
        request = fleet_pb2.ForgetClusterRequest(cluster=cluster, reason=reason, dry_run=dry_run)
        reply: fleet_pb2.ForgetClusterReply = self._call(self._admin.ForgetCluster, request)
        return reply

    def release_cluster(self, cluster: str, reason: str) -> bool:
        """End a cluster's quarantine; False if it was in none."""
        request = fleet_pb2.ReleaseClusterRequest(cluster=cluster, reason=reason)
        return bool(self._call(self._admin.ReleaseCluster, request).released)

    def _call(
        self, method: Callable[..., Reply], request: object, not_as_it_stands: type[LearnerError] = LearnerError
    ) -> Reply:
        try:
            return method(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code in _UNREACHABLE:
                raise Unreachable(f"no learner answers at {self._address}: {self._why(code, f'{details}')}") from error
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise self._unknown_call() from error
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise not_as_it_stands(f"{details}") from error
            raise _REFUSALS.get(code, LearnerError)(f"{details}") from error

    def _unknown_call(self) -> LearnerError:
        """Why a server does not know a call: it is another one, or a learner of before."""
        try:
            self._admin.GetFleet(fleet_pb2.GetFleetRequest(), timeout=self._timeout_seconds)  # learners always knew it
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                from global_learner.policyctl.other_server import NOT_FOR_OPERATORS  # noqa: PLC0415

                return Unreachable(f"no learner answers at {self._address}: {NOT_FOR_OPERATORS}")
        return LearnerError("this learner is of an earlier version, which does not know this command; upgrade it first")

    def _why(self, code: grpc.StatusCode, details: str) -> str:
        """Why nobody answers there, and what to do."""
        if code is grpc.StatusCode.UNAVAILABLE and not details.startswith(NO_CONNECTION):
            return f"{details}; wait, or name another one with --learner"  # a learner's own words
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"nothing came within {self._timeout_seconds:g} s; start it, or name another one with --learner"
        if self._socket is not None:
            if not self._socket.path.exists():
                return "there is no such socket; is that the learner's state_dir? Or name another one with --learner"
            return "there is no learner behind that socket; start it, or name another one with --learner"
        # Loaded here: asked by those alone who got no answer.
        from global_learner.policyctl.other_server import explained  # noqa: PLC0415

        return explained(self._address, self._certified, self._timeout_seconds, details)


class ShownFiles:
    """What connections one after the other show and trust: the files as they are, or as they were when they were whole.

    Args:
        on_refused: is told why files that were replaced are not used.
    """

    def __init__(self, tls: TlsFiles, on_refused: Callable[[str], None]) -> None:
        self._tls, self._on_refused = tls, on_refused
        self._followed: FollowedFiles[grpc.ChannelCredentials | None] | None = None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Of the next connection; None for plain text.

        Raises:
            BadConfig, IdentityFileError: the first time: a file cannot be used.
        """
        if self._followed is None:
            self._followed = FollowedFiles(
                lambda content: credentials(self._tls, content),
                ExpectedError,
                on_refused=self._on_refused,
                look_seconds=0.0,
            )
        return self._followed.current()


def credentials(tls: TlsFiles, content: Content | None = None) -> grpc.ChannelCredentials | None:
    """What a connection shows and trusts; None for plain text.

    Args:
        content: reads a file that is followed.

    Raises:
        BadConfig, IdentityFileError: a file cannot be used.
    """
    if tls.ca is not None:
        files = read_connection_files(tls.ca, tls.certificate, tls.key, content or plain_content)
        return grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)
    if tls.key is not None:
        raise BadConfig("--key needs --ca and --cert beside it; or give an identity file as --cert, alone")
    if tls.certificate is None:
        return None
    own = read_identity(tls.certificate, content)
    return grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
