"""Sections of the settings that stand apart from the rooms that work by them.

Those rooms bring a database, fits and statistics. A configuration is checked without them, so that its author is told
of a slip of the pen at once.

Rates of calls are those of one cluster, so that a fleet may come back all at once; they are kept where clusters show
certificates. Operators have no rate, and calls in progress of their own that no cluster can take.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from policy_net.settings import Constant, Section


def _database_url(text: str) -> str:
    from global_learner.postgres.server import checked_url  # noqa: PLC0415  (a database: most learners have none)

    return checked_url(text)


DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
"""A setting that holds the URL of a PostgreSQL database."""


class CallSettings(Section):
    """How much one cluster may ask at a time, and how often. Agents that are refused come again after a while."""

    per_cluster: Constant[int] = Field(4, ge=1, le=1000)
    """Calls of one cluster and kind (updates and heads; heartbeats; the registry's) in progress, the time included that
    it takes to read the answer. An agent makes one of a kind at a time."""
    waiting_per_cluster: Constant[int] = Field(16, ge=0, le=1000)
    """Beyond that, so many of a cluster's calls of a kind wait for their turn; further ones are refused at once."""
    wait_seconds: Constant[float] = Field(5.0, gt=0.0, le=600.0)
    """Longest wait for a turn, after which a call is refused; half of an agent's own patience."""
    arrival_seconds: Constant[float] = Field(60.0, gt=0.0, le=3600.0)
    """A call whose message has not come whole so long after its turn is ended."""
    send_seconds: Constant[float] = Field(60.0, gt=0.0, le=3600.0)
    """A call whose answer has not been read so long after it was given is ended. A head of 1.3 MB over a line of
    200 kbit/s takes as long."""
    keepalive_seconds: Constant[float] = Field(60.0, ge=10.0, le=3600.0)
    """A connection over which nothing came for so long is asked for a sign of life, and closed if there is none within
    a third of that."""
    burst: Constant[int] = Field(20, ge=1, le=10_000)
    """So many of each of the following calls may come at once, after a pause. These rates need certificates."""
    registrations_per_minute: Constant[float] = Field(30.0, gt=0.0, le=60_000.0)
    """`Register` of one cluster. An agent registers once a start; each writes to the registry's disk."""
    reports_per_minute: Constant[float] = Field(60.0, gt=0.0, le=60_000.0)
    """`ShareBeliefs` of one cluster; the same of `ShareEvidence` and of `ShareSketch`. An agent shares beliefs once a
    minute, in demonstrations every five seconds, and a sketch once a day."""
    fetches_per_minute: Constant[float] = Field(60.0, gt=0.0, le=60_000.0)
    """`FetchPolicy` of one cluster, and the same of `ReturnPolicy`. An agent fetches a version once."""
    renewals_per_minute: Constant[float] = Field(6.0, gt=0.0, le=60_000.0)
    """`RenewCertificate` of one cluster. An agent renews once in weeks; each costs a signature."""


class QuarantineSettings(Section):
    """When a cluster's updates are no longer looked at. Rejections alone cost it nothing but its own time."""

    rejections: Constant[int] = Field(8, ge=1, le=10_000)
    """So many faulty updates (not finite, too large, of another shape or spec, without samples, ahead of the head) put
    a cluster in quarantine, less those that were forgiven; 8 are no accident any more."""
    within_updates: Constant[int] = Field(20, ge=1, le=10_000)
    """So many accepted updates forgive one faulty one; not below `rejections`. `rejections` among the last so many
    always suffice, and so does, in the long run, any constant share of more than one in so many and one."""
    seconds: Constant[float] = Field(3600.0, ge=0.0, le=31_536_000.0)
    """How long it lasts; `policyctl cluster release` ends it earlier. 0: nobody is quarantined."""

    @model_validator(mode="after")
    def _reachable(self) -> QuarantineSettings:
        if self.rejections > self.within_updates:
            raise ValueError(
                f"rejections = {self.rejections} of within_updates = {self.within_updates} can never be reached"
            )
        return self


class DurabilitySettings(Section):
    """What survives a crash, and at which price."""

    snapshot_every_steps: Constant[int] = Field(50, ge=1)
    """A snapshot, after which the log is cut, every so many head steps. 50 updates of 1.3 MB are 65 MB of log;
    what a longer log holds takes as much longer to apply again after a crash."""
    max_log_bytes: int | None = Field(None, ge=65_536)
    """The log never takes more than this on disk: a snapshot is taken early, and where that is not enough, updates wait
    until it is written. Unless set, 512 MiB, or room for 32 updates if that is more; not below 16 updates."""
    max_receipts_bytes: Constant[int] = 256 << 20
    """What remains of the log when it is cut, some 230 bytes an update, takes no more than this on disk and a
    sixteenth; the oldest go first, and only how many they were is kept. 256 MiB name a million updates."""


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F:]{2,39}")


class IdentitySettings(Section):
    """The learner's own certificate authority: clusters are enrolled by it, and everybody shows a certificate."""

    names: tuple[str, ...] = ()
    """DNS names and addresses that agents dial, for the learner's certificate; the host of `listen` unless set."""
    enroll_port: int | None = Field(7072, ge=0, le=65_535)
    """Port beside that of `listen` at which clusters trade tokens for certificates, since they have none yet. 0 takes a
    free one; null: nobody can enroll."""
    token_minutes: Constant[float] = Field(60.0, gt=0.0, le=43_200.0)
    """How long an enrollment token is good: long enough to carry it to the cluster and start the agent."""
    certificate_days: float = Field(30.0, gt=0.0, le=825.0)
    """How long a cluster's certificate is good; agents renew after two thirds. An agent that was away for longer than
    the last third must be enrolled again."""
    ca_certificate_file: Path | None = None
    """The certificate of an authority of one's own (PEM); unless set, one is made under the state directory."""
    ca_key_file: Path | None = None
    """Its private key (PEM, no password); only its owner may read it."""

    @field_validator("names")
    @classmethod
    def _hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} is no host: use DNS names and addresses, without a port")
        return names

    @model_validator(mode="after")
    def _whole(self) -> IdentitySettings:
        if (self.ca_certificate_file is None) is not (self.ca_key_file is None):
            raise ValueError("ca_certificate_file and ca_key_file belong together: set both, or none")
        return self


class SigningSettings(Section):
    """How the learner signs versions and assignments; its keys lie in `signing/` of the state directory."""

    timestamp_minutes: Constant[float] = Field(60.0, gt=0.0, le=43_200.0)
    """How long the statement holds that a cluster is to act on a version; after that, an answer that somebody kept is
    refused. An hour: clocks that differ by minutes do no harm. It is made anew after a third of it."""


class BeliefSettings(Section):
    """What clusters tell of speeds, and how it becomes the priors of `set` versions."""

    into_versions: Constant[bool] = True
    """Not read any more: versions of a policy that plans on beliefs carry the fleet's merged priors."""
    min_clusters: int = Field(1, ge=1, le=100_000)
    """A job type's speeds are passed on once so many clusters have told of it. 1: one cluster's experience helps the
    next. 2 or more where no cluster is to learn the name of a type that only one other runs."""
    large_move_clusters: Constant[int] = 2
    """So many clusters must tell of a large move before versions make it: by more than a quarter against the version
    before, or twofold against v1; of a type that v1 lacks, against what so many clusters agreed on last. 2: one
    reporter alone can neither rewrite nor wear down what two have borne out."""
    max_types: Constant[int] = 1024
    """Job types in the fleet's vocabulary; further ones are left out of reports, and the agent is told so."""
    max_types_per_cluster: Constant[int] = 128
    """How many of them one cluster may bring in: nobody fills the vocabulary alone. Also the most in a report."""
    max_statistics: Constant[int] = 16_384
    """Splits in one report; it is refused beyond. Twice what an agent sends; a report of so many is 180 kB."""


class ScoreSettings(Section):
    """Scores of versions on fixed replays, by a process of its own that runs after everything else."""

    enabled: bool = True
    """Every published version is replayed on the fixed replays, beside drf, optimus and oracle: a few CPU seconds each,
    one at a time, the newest first."""
    deadline_seconds: Constant[float] = 600.0
    """Longest time, on the clock and of the processor, after which a version has no score. The replays take one to
    four seconds; a policy that schedules badly has long ones, and a busy machine leaves little to low priority."""
    sketch_deadline_seconds: Constant[float] = 120.0
    """Longest time for the replays of one cluster's own work at a rollout's gate, all versions together; beyond, that
    cluster is left out there."""
    nice: Constant[int] = Field(10, ge=0, le=19)
    """Added to the process's niceness. 10 leaves a tenth of a busy core to it; at 19 a machine on which much runs
    may not get round to it before the deadline."""
    max_memory_mb: Constant[int] = 2048
    """Address space of the process; it takes about a tenth of it. Beyond, it ends, and the version has no score."""


def checked_address(address: str) -> str:
    """The address of a Prometheus server, without a slash at its end.

    Raises:
        ValueError: it is none.
    """
    shown = "what stands there" if "@" in address else repr(address[:80])  # a password is not to be read anywhere
    wrong = f"{shown} is no server's address; write http://HOST:PORT or https://HOST:PORT, with a path if any"
    if not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError(wrong)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise ValueError(wrong) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or "@" in parts.netloc:
        raise ValueError(wrong)
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise ValueError(wrong)
    return address.rstrip("/")


PrometheusAddress = Annotated[str, Field(max_length=300), AfterValidator(checked_address)]


class PrometheusServer(Section):
    """A server whose numbers plans may use."""

    address: PrometheusAddress
    """As plans write it, such as http://prometheus.monitoring:9090; with a path if it has one."""
    token_file: Path | None = None
    """Holds the token that is sent as `Authorization: Bearer`; read anew for each question."""
    ca_file: Path | None = None
    """With https: whose certificates are believed (PEM); the system's unless given."""


_SIMULATED_PERIOD_SECONDS = 0.5


class RolloutSettings(Section):
    """How the learner runs rollouts; what one of them does stands in its plan."""

    period_seconds: Constant[float] = Field(5.0, ge=0.05, le=3600.0)
    """How often a running rollout is looked at; a fail goes to every agent with its next heartbeat behind that."""
    away_seconds: Constant[float] = Field(180.0, ge=1.0, le=86_400.0)
    """Silence after which a cluster counts as away: it holds nobody up, and learns on its return what it is to do."""
    real_time_factor: float = Field(1.0, ge=1.0, le=1e9)
    """Most seconds of a cluster's own time in one of the learner's. What a cluster brings of a rollout before there was
    time for it waits. 1 for real clusters; simulated ones live faster, up to their `speedup`."""
    prometheus: tuple[PrometheusServer, ...] = Field((), max_length=32)
    """The servers that the queries of plans may ask. None unless named here: a plan sends the learner nowhere else."""
    query_deadline_seconds: Constant[float] = 10.0
    """Longest time that a query may take; then it had no answer."""

    def below(self, folder: Path) -> RolloutSettings:
        """The settings with files that do not depend on the working directory."""
        servers = []
        for server in self.prometheus:
            files = {"token_file": server.token_file, "ca_file": server.ca_file}
            servers.append(
                server.model_copy(update={name: folder / file for name, file in files.items() if file is not None})
            )
        return self.model_copy(update={"prometheus": tuple(servers)})

    @property
    def poll_seconds(self) -> float:
        """How often a running rollout is looked at; of simulated clusters, whose hours are seconds, more often."""
        is_simulated = self.real_time_factor > 1.0
        return min(self.period_seconds, _SIMULATED_PERIOD_SECONDS) if is_simulated else self.period_seconds

    @model_validator(mode="after")
    def _each_once(self) -> RolloutSettings:
        addresses = [server.address for server in self.prometheus]
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"prometheus names {address} {addresses.count(address)} times: name it once")
        return self
