"""Settings of the learner: one YAML file, checked whole before anything starts.

Every setting says its unit, its meaning and why its default is what it is. Unknown keys are errors: with a misspelt
setting a fleet learns otherwise than its owner believes. Relative paths are taken from the folder of the file.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from foundation.text import nearest
from global_learner.aggregation.settings import (
    AggregationMode,
    AggregationSettings,
    ChosenUnits,
    OptimizerChoice,
    OptimizerSettings,
    PrivacySettings,
    check_covered,
)
from global_learner.errors import BadLearnerConfig
from global_learner.section_settings import (
    BeliefSettings,
    CallSettings,
    DatabaseUrl,
    DurabilitySettings,
    IdentitySettings,
    QuarantineSettings,
    RolloutSettings,
    ScoreSettings,
    SigningSettings,
)
from policy_net.errors import BadInput
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.exchange.spec import SET, WeightSpec
from policy_net.settings import AGENTS_FILE, Address, Constant, Section, read_settings_file

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  (refused, not listened on)
SET_AVERAGE_DECAY = 0.99
DL2_AVERAGE_DECAY = 0.9
"""Over ten lessons, about one of each cluster of a small fleet: none alone says what becomes a version."""
"""Versions of `set` average a hundred steps unless the settings say otherwise: its gradients are mostly noise."""


def split_address(address: str) -> tuple[str, int]:
    """Host (without the brackets of IPv6) and port of `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_everywhere(address: str) -> bool:
    """Whether the address is all of a machine's, and so names no host that could be dialled."""
    return split_address(address)[0] in _EVERYWHERE


def _meet(first: str, second: str) -> bool:
    """Whether two servers at these addresses would want one port; 0 takes a free one."""
    (host, port), (other, other_port) = split_address(first), split_address(second)
    return 0 != port == other_port and (host == other or is_everywhere(first) or is_everywhere(second))


class IngestSettings(Section):
    """What an update must be to be applied; anything else is rejected with a reason, and changes nothing."""

    max_gradient_norm: Constant[float] = 1e3
    """Euclidean norm beyond which an update is *rejected*, not clipped. Sound gradients of this policy have a norm of
    0.01 to 10; what is a hundred times larger is a fault, and clipped it would still point the wrong way."""
    clip_factor: Constant[float] = Field(4.0, ge=0.0, le=1e6)
    """A gradient is shortened to at most so many times the usual norm before it is applied: the median over clusters of
    what nine of ten of a cluster's latest gradients do not exceed; 0: none is. Until three clusters have sent eight
    gradients each, the limit is a norm of 10 or less. Honest gradients are hardly ever touched at 4, and one at the
    limit shortens everybody's next steps by less than a hundredth."""
    max_staleness_steps: Constant[int] = Field(64, ge=0)
    """Rejected beyond so many head steps above what the active clusters explain (see `staleness`): at 64 in a fleet of
    three the step would be a twentieth, and the off-policy correction no longer holds. Of one cluster's steps at most
    eight count, however many it made."""
    updates_per_second: float | None = Field(None, ge=0.0, le=1e6)
    """Updates that one cluster may send in the long run; faster ones are refused as `too-fast` and come again, and
    answers to duplicates and rejected updates wait half a second where they are more. Agents decide a minute apart:
    unless set it is 1, and 0, which is no limit, where only this machine can reach the learner, as in simulations,
    whose clusters live faster."""
    burst_updates: Constant[int] = Field(512, ge=1, le=1_000_000)
    """How many it may send at once after a while of silence: twice what an agent's queue holds after an outage."""
    active_window_updates: Constant[int] = 256
    """A cluster is active if one of the last so many accepted updates is its own. Counted in updates, not seconds,
    since staleness is; must be above the number of clusters."""
    max_clusters: int = Field(1024, ge=1, le=100_000)
    """Registrations of further clusters are refused: bounds memory and the number of metrics."""
    max_message_bytes: Constant[int | None] = None
    """Not read any more: the largest request is a gradient of the served policy and 1 MiB."""
    max_concurrent_requests: Constant[int] = Field(256, ge=1, le=10_000)
    """Updates and heads in progress, of all clusters, beyond which calls wait for their turn and are then told to come
    again; bounds memory to as many gradients. One cluster has at most `CallSettings.per_cluster` of them."""
    max_connections: Constant[int | None] = Field(None, ge=1, le=100_000)
    """Open connections, beyond which new ones are closed at once: a flood of them must not take the files that the log
    needs. Four times `max_clusters` and 256 at least, as an agent has one. From three quarters on, those that never
    made a call are closed, of the address that has most of them."""


class PublishSettings(Section):
    """When the head becomes a version."""

    every_steps: int = Field(100, ge=1)
    """A version every so many head steps. A hundred updates at 1e-4 move the policy visibly; a file is about 1.3 MB."""
    average_decay: float | None = Field(None, ge=0.0, lt=1.0)
    """A version is the exponential average of the head, which keeps this share of itself at each step; 0 publishes the
    head itself. 0.99 averages over the last hundred steps, and takes out the noise of single gradients. Unless set:
    0.99 for `set`, 0.9 for `dl2`, and 0 where it learns from live updates too."""
    auto_assign: bool = False
    """Every cluster that `policyctl assign` does not hold acts on each new version at once. For simulations and
    demonstrations, and said in a warning at the start: in production nothing new acts without a decision, and clusters
    stay on v1."""
    keep_versions: int = Field(50, ge=0)
    """Versions whose files are kept: the newest so many. A file and the moments beside it, which `policyctl head reset`
    needs, take about 5 MB. v1, the newest, versions that are assigned or pinned or that the head was reset to, and the
    parents of these stay in any case; cards stay for ever. 0 keeps all."""
    keep_days: Constant[float | None] = Field(None, gt=0.0, le=36_500.0)
    """Not read any more: age does not count."""

    def decay_for(self, spec: WeightSpec, *, only_replays: bool = False) -> float:
        """The decay for policies of this spec, that learn from replays alone or not."""
        if self.average_decay is not None:
            return self.average_decay
        if spec.policy == SET:
            return SET_AVERAGE_DECAY
        return DL2_AVERAGE_DECAY if only_replays else 0.0


class TlsSettings(Section):
    """Files of the server's side of TLS (PEM); with `client_ca_file` the callers must show a certificate too."""

    certificate_file: Path
    """The learner's certificate chain."""
    key_file: Path
    """Its private key."""
    client_ca_file: Path | None = None
    """Callers' certificates are checked against these; their name is then their identity. Needed off loopback."""
    admin_names: tuple[str, ...] = ("policyctl",)
    """Certificate names of people, and no cluster's: admins, unless their certificate has the URI
    `fedl2:role:viewer` or `fedl2:role:operator` and so says less. No URI makes anybody more than these names do."""


class TelemetrySettings(Section):
    """What the learner says about itself."""

    http_listen: Address | None = "127.0.0.1:7071"
    """HOST:PORT of /metrics, /healthz and /readyz; null for none. Beside the service's own port."""
    live_page: bool | None = None
    """Whether the report is shown there too, to anybody who reaches the port: clusters, their jobs' numbers and times,
    versions. Unless set, it is where `http_listen` is on loopback."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """One line an update is at `info`."""

    @property
    def shows_page(self) -> bool:
        """Whether the report is shown at `http_listen`."""
        if self.http_listen is None or self.live_page is not None:
            return bool(self.http_listen and self.live_page)
        return is_loopback(self.http_listen)


class UpstreamSettings(Section):
    """The learner above, of which this one is a region: what its clusters learned goes up, heads and versions down."""

    address: Address
    """HOST:PORT of its service."""
    name: str = Field(min_length=1, max_length=63)
    """What this region is called there; `policyctl cluster enroll NAME` at the learner above invites it."""
    enrollment_file: Path | None = None
    """What that command wrote. Its token is traded once for a certificate, which lies in `upstream/` of `state_dir` and
    is renewed in time. Unless set, the connection is plain text, which only a loopback address may use."""
    push_seconds: Constant[float] = Field(20.0, gt=0.0, le=86_400.0)
    """From one push to the next, if anything was gathered meanwhile; also how old the head above may get before it is
    pulled again. 20 s: a gradient waits for half of that on average; a hundred regions are five updates a second."""
    heartbeat_seconds: Constant[float] = Field(2.0, gt=0.0, le=3600.0)
    """From one heartbeat to the next; an assignment from above takes as long to arrive. As agents do by default."""
    call_seconds: Constant[float] = Field(10.0, gt=0.0, le=600.0)
    """How long one call to the learner above may take; then it is made again. As agents do by default."""

    @model_validator(mode="after")
    def _authenticated(self) -> UpstreamSettings:
        if self.enrollment_file is None and not is_loopback(self.address):
            raise ValueError(
                f"address = {self.address} is on another machine, where a bare name is not believed: set "
                "enrollment_file, which `policyctl cluster enroll` writes at the learner above"
            )
        return self


class LearnerSettings(Section):
    """Everything about one learner."""

    state_dir: Path
    """Log, snapshots, registry and policy files; one learner at a time may hold it."""
    database: DatabaseUrl | None = None
    """`postgresql://USER@HOST:PORT/DATABASE` of a database that two learners share, of which one is active and the
    other one waits; both have the same settings, and `state_dir` on a file system that both machines have. A password
    comes from `~/.pgpass`. Unless set, the tables lie in `state_dir`, and one learner is all there is."""
    lease_seconds: Constant[float] = Field(5.0, ge=1.0, le=600.0)
    """How long the active learner of a shared `database` may be silent before the other one takes over. 5 s: with the
    start of the other one, a failover takes less than 10 s, and a database that restarts within 4 s is not noticed."""
    initial_policy: Path
    """The policy file that becomes v1 in an empty state directory; later starts only compare its spec. The
    words `dl2`, `set` and `set-taught` are the trained ones that ship with fedl2."""
    listen: Address = "127.0.0.1:7070"
    """HOST:PORT of the service; port 0 takes a free one and needs `port_file`."""
    port_file: Path | None = None
    """Where the bound ports are written as JSON (`port`, `http_port`) once the learner serves; for scripts."""
    shutdown_grace_seconds: Constant[float] = 5.0
    """How long requests in progress may take after SIGTERM; a push takes milliseconds."""
    optimizer: OptimizerChoice = OptimizerChoice()
    aggregation: AggregationSettings = AggregationSettings()
    ingest: IngestSettings = IngestSettings()
    calls: Constant[CallSettings] = CallSettings()
    privacy: PrivacySettings | None = None
    """Noise on what clusters push, so that little follows from one cluster's updates; none unless set."""
    quarantine: Constant[QuarantineSettings] = QuarantineSettings()
    beliefs: BeliefSettings = BeliefSettings()
    publish: PublishSettings = PublishSettings()
    scores: ScoreSettings = ScoreSettings()
    rollouts: RolloutSettings = RolloutSettings()
    durability: DurabilitySettings = DurabilitySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    signing: Constant[SigningSettings] = SigningSettings()
    tls: TlsSettings | None = None
    """Certificates that were made elsewhere. Without this and `identity` all is plain text, which only a loopback
    address may use."""
    identity: IdentitySettings | None = None
    """Certificates that the learner makes itself; `{}` takes the defaults."""
    upstream: UpstreamSettings | None = None
    """The learner above, where this one is a region's. Unless set, there is none above."""

    @model_validator(mode="before")
    @classmethod
    def _chosen_aggregation(cls, values: Any) -> Any:
        """Where others reach the learner and nobody chose an aggregation, none is to rule; a region takes no steps."""
        if not isinstance(values, dict):
            return values
        listen = values.get("listen")
        if isinstance(listen, str) and "aggregation" not in values:
            with contextlib.suppress(ValueError):
                if not is_loopback(listen):
                    values = {**values, "aggregation": {"mode": AggregationMode.ROBUST.value}}
        chosen = values.get("aggregation", {})
        if values.get("upstream") is not None and isinstance(chosen, dict):
            values = {**values, "aggregation": {**chosen, "passes_up": True}}
        return values

    def optimizer_for(self, spec: WeightSpec) -> OptimizerSettings:
        """The optimizer for policies of a spec, with nothing left open."""
        return self.optimizer.resolved(spec, self.aggregation, noisy=self.privacy is not None)

    def only_replays(self, spec: WeightSpec) -> bool:
        """Whether updates from live experience are refused."""
        return self.optimizer.only_replays(spec, self.aggregation, noisy=self.privacy is not None)

    @property
    def enroll_address(self) -> str | None:
        """HOST:PORT for enrollment; None if nobody can enroll."""
        port = None if self.identity is None else self.identity.enroll_port
        return None if port is None else f"{self.listen.rpartition(':')[0]}:{port}"

    @property
    def updates_per_second(self) -> float:
        """Updates that one cluster may send in the long run; 0 for no limit."""
        chosen = self.ingest.updates_per_second
        return (0.0 if is_loopback(self.listen) else 1.0) if chosen is None else chosen

    @property
    def authenticated(self) -> bool:
        """Whether every caller must show a certificate."""
        return self.identity is not None or (self.tls is not None and self.tls.client_ca_file is not None)

    def _check_ports(self) -> None:
        """See that the learner's own servers do not meet: each would blame the other, in a state directory begun."""
        addresses = {
            "listen": self.listen,
            "identity.enroll_port": self.enroll_address,
            "telemetry.http_listen": self.telemetry.http_listen,
        }
        for (one, first), (other, second) in itertools.combinations(addresses.items(), 2):
            if first is not None and second is not None and _meet(first, second):
                port = split_address(first)[1]
                raise ValueError(f"{one} and {other} have the same port, {port}: name another one for either")

    def _check_region(self, upstream: UpstreamSettings) -> None:
        """Whatever a region leaves to the learner above cannot be set here."""
        if upstream.address == self.listen:
            raise ValueError(f"upstream.address = {upstream.address} is this learner itself: name the one above")
        if self.publish.auto_assign:
            raise ValueError("a region's versions come from the learner above: set publish.auto_assign there")
        units = self.optimizer.units
        if self.optimizer != OptimizerChoice(units=units) or units is ChosenUnits.SPREADS:
            raise ValueError(
                "a region takes no steps: set optimizer at the learner above, and here units: weights alone"
            )
        if self.database is not None:
            raise ValueError("a region with a standby is not supported: leave out database, or upstream")

    @model_validator(mode="after")
    def _consistent(self) -> LearnerSettings:
        if split_address(self.listen)[1] == 0 and self.port_file is None:
            raise ValueError("listen has port 0, so nobody could find it: name a port, or a port_file")
        self._check_ports()
        if self.upstream is not None:
            self._check_region(self.upstream)
        if self.privacy is not None:
            check_covered(self.aggregation, is_region=self.upstream is not None)
        if self.identity is not None and self.tls is not None:
            raise ValueError(
                "tls and identity are two ways to the same end: set tls for certificates made elsewhere, else identity"
            )
        if self.identity is not None and not self.identity.names and is_everywhere(self.listen):
            raise ValueError(
                f"listen = {self.listen} names no host for a certificate: set identity.names to what agents dial"
            )
        if not self.authenticated and not is_loopback(self.listen):
            raise ValueError(
                f"listen = {self.listen} can be reached from other machines, where a bare name is not believed: "
                "set identity, or tls with client_ca_file, or listen on 127.0.0.1"
            )
        return self


def read_settings(path: Path) -> LearnerSettings:
    """Read and check a configuration file.

    Raises:
        BadConfig: not there, no YAML, an unknown key, a wrong type or value; the message is one line.
    """
    try:
        settings = read_settings_file(path, LearnerSettings, "state_dir and initial_policy", AGENTS_FILE)
    except BadInput as error:
        raise BadLearnerConfig(str(error)) from error
    return _resolved(settings, path.resolve().parent)


def _initial_policy(named: Path, folder: Path) -> Path:
    if str(named) not in SHIPPED_FILES:
        close = None if (folder / named).exists() else nearest(str(named), SHIPPED_FILES)
        if close is not None:
            raise BadLearnerConfig(
                f"setting initial_policy = {str(named)!r}: there is no such file in {folder}; did you mean {close}, "
                "which ships with fedl2?"
            )
        if len(named.parts) == 1 and not named.suffix and not (folder / named).exists():
            raise BadLearnerConfig(
                f"setting initial_policy = {str(named)!r}: there is no such file in {folder}, and no heuristic learns: "
                f"name a policy file, or {' or '.join(SHIPPED_FILES)}, which ship with fedl2"
            )
        return folder / named
    return SHIPPED_FILES[str(named)]


def _resolved(settings: LearnerSettings, folder: Path) -> LearnerSettings:
    """The settings with paths that do not depend on the working directory."""
    changes: dict[str, object] = {
        "state_dir": folder / settings.state_dir,
        "initial_policy": _initial_policy(settings.initial_policy, folder),
        "port_file": folder / settings.port_file if settings.port_file is not None else None,
        "rollouts": settings.rollouts.below(folder),
    }
    if settings.tls is not None:
        names = ("certificate_file", "key_file", "client_ca_file")
        files = {name: folder / path for name in names if (path := getattr(settings.tls, name)) is not None}
        changes["tls"] = settings.tls.model_copy(update=files)
    if settings.upstream is not None and (file := settings.upstream.enrollment_file) is not None:
        changes["upstream"] = settings.upstream.model_copy(update={"enrollment_file": folder / file})
    if settings.identity is not None:
        own = ("ca_certificate_file", "ca_key_file")
        files = {name: folder / path for name in own if (path := getattr(settings.identity, name)) is not None}
        changes["identity"] = settings.identity.model_copy(update=files)
    return settings.model_copy(update=changes)
