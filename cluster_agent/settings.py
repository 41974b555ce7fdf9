"""Settings of an agent: one YAML file, checked whole before anything starts.

Every setting says its unit, its meaning and why its default is what it is. Unknown keys are errors: a misspelt setting
that is silently ignored is a cluster that is scheduled otherwise than its operator believes. Relative paths are taken
from the folder of the configuration file.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from cluster_agent.backend_settings import BackendSettings
from policy_net.learning.settings import (
    REPLAY_SAMPLES,
    ActorCriticSettings,
    GroupSettings,
    ResidualSettings,
    TwinSettings,
)
from policy_net.privacy.settings import NoiseSettings
from policy_net.settings import Address, ClusterName, Constant, Seconds, Section

MOST_JOBS = 16
"""A heartbeat with so many full timelines is about 40 kB."""


class Acting(StrEnum):
    """Which weights decide."""

    ASSIGNED = "assigned"
    HEAD = "head"
    LOCAL = "local"


class PolicySettings(Section):
    """Which policy decides, and how."""

    initial: str | None = None
    """A policy file, or a scheduler's name such as `drf`, to start with; what the learner assigned unless set."""
    acting: Acting = Acting.ASSIGNED
    """`assigned`: the version that the learner's operator assigned. `head`: the newest weights, for simulations and
    ablations. `local`: always the initial one."""
    mode: Literal["greedy", "sample"] = "greedy"
    """Production takes the most probable admissible action; a simulation that trains samples."""
    exploration: float = Field(0.0, ge=0.0, le=1.0)
    """Probability of another action than the policy's: with `dl2` the repair of a lopsided job (job-aware exploration),
    with `set` the runner-up at each pick. Every such action is logged with its probability. 0: an operator has to
    want it."""
    seed: int = Field(0, ge=0)
    """Draws samples and exploration; a decision's own seed is derived from this and its number."""


class GuardSettings(Section):
    """What stands between a policy and the cluster."""

    deadline_ms: float = Field(2000.0, gt=0.0, le=3_600_000.0)
    """Longest a policy may think. Decisions are minutes apart and take milliseconds: beyond two seconds it hangs."""
    fallback: str = "drf"
    """The scheduler that decides in a faulty policy's place: fair, without parameters, the one DL2 starts from."""


class TwinLearningSettings(Section):
    """What a cluster's own past teaches: replays of its jobs under slightly other weights, in a process of its own."""

    history: tuple[str, ...] = ()
    """Recordings of this cluster's past beside the decision log, as `policy-net replay --workload` takes them
    (`sacct:FILE`, a csv, …), so that last month teaches on the first day. They stay here, as the log does."""
    job_kind: Literal["ps", "async", "allreduce", "mix"] = "mix"
    """How the jobs of a recording train; it does not say."""
    work_known: bool = False
    """Whether the jobs of a recording say how much work they are; live ones that do say so in the log."""
    window_jobs: int = Field(500, ge=20, le=100_000)
    """Consecutive jobs of one replay. More of them hang less on their first and last ones, and take longer."""
    speed_spread: Constant[float] = 0.15
    """How wrong the speeds may be: deviation of the log of a factor that every type gets in every window."""
    speed_noise: Constant[float] = 0.27
    """How much a job's speed varies between decisions, as a share of it; nobody reads speeds off exactly."""
    cpu_percent: float = Field(5.0, gt=0.0, le=100.0)
    """Of one core; the process has the lowest priority, and decisions never wait for it."""
    gradient: TwinSettings = TwinSettings()
    """How many replays make a gradient of a `set` policy."""
    groups: Constant[GroupSettings] = GroupSettings(micro_actions=20_000, own_share=0.0)
    """Groups of decisions, and steps on them, of one lesson of a `dl2` policy: two seconds of a core, and 200 MB."""


class LearningSettings(Section):
    """How experience becomes gradients."""

    enabled: bool = True
    """Whether this cluster's experience trains the policy; needs a learner."""
    source: Literal["auto", "live", "twin"] = "auto"
    """What gradients are made of. `live`: what decisions brought, with exploration. `twin`: replays of this cluster's
    own jobs, which tell far more and need no exploration, and are all that a learner takes unless told otherwise
    (`optimizer.units`). `auto`: twin, unless the learner works in rounds or there is no `decision_log` to replay; then
    live."""
    twin: TwinLearningSettings = TwinLearningSettings()
    """Which jobs are replayed, and how much of a core that may take."""
    actor_critic: Constant[ActorCriticSettings] = ActorCriticSettings()
    """The update of a `dl2` policy: reward, segment, batch, entropy."""
    residual: ResidualSettings = ResidualSettings()
    """The update of a `set` policy: segment, credit, when it pauses."""
    update_every_decisions: Constant[int] = 1
    """A gradient every so many decisions. Source: DL2 §4.3 (one update a slot)."""
    replay_samples: Constant[int] = REPLAY_SAMPLES
    """Micro-actions kept for replay; about a thousand decisions (DL2 §4.3: 8192 micro-actions)."""
    queue_decisions: Constant[int] = 256
    """Decisions that may wait for the trainer; the oldest is dropped beyond, and counted. Bounds memory."""
    permute_rewards: Constant[bool] = False
    """A control experiment: rewards are dealt out anew within each segment, and nothing can be learned from them."""
    head_max_age_seconds: Constant[float] = 1.0
    """A head older than this is pulled again before a gradient is computed at it; each push returns a newer one."""
    flush_seconds: Constant[float] = Field(10.0, ge=0.0, le=600.0)
    """At the end of a run, longest wait for experience to reach the learner, and then for the last heartbeat to."""
    seed: Constant[int] = Field(0, ge=0)
    """Draws the replayed segments, mini-batches and permutations."""


class RetrySettings(Section):
    """How the learner is called, and how a call that failed is made again."""

    initial_seconds: Constant[Seconds] = 0.2
    """Upper bound of the first wait; each further one doubles. A restarted learner is back within seconds."""
    maximum_seconds: Constant[Seconds] = 15.0
    """Upper bound of all waits: a fleet is heard again within this of the learner's return."""
    call_seconds: Seconds = 10.0
    """Deadline of one call; weights of half a megabyte take milliseconds, a loaded machine a second."""


class ClientTlsSettings(Section):
    """Files of a mutually authenticated connection; the certificate's name is the cluster's identity."""

    ca_file: Path
    """Certificates that the learner's is checked against (PEM)."""
    certificate_file: Path
    """This agent's certificate chain (PEM)."""
    key_file: Path
    """Its private key (PEM)."""


class LearnerConnectionSettings(Section):
    """Where the learner is."""

    address: Address
    """`host:port`."""
    further_addresses: tuple[Address, ...] = ()
    """`host:port` of the other learners of the fleet, of which one is active at a time (the learner's `database`). Who
    does not answer is left for the next one, around and around. For one learner there is none."""
    heartbeat_seconds: Seconds = 2.0
    """How often the status is sent and a new assignment noticed; small against a slot, cheap enough for hundreds."""
    job_timelines: int = Field(0, ge=0, le=MOST_JOBS)
    """How many jobs' timelines the heartbeat carries for the learner's report: type, workers and parameter servers over
    time, without names. 0: nothing about a single job leaves the cluster."""
    tell_load: bool = True
    """Whether heartbeats carry how many GPUs there are, how many were in use and how many jobs waited, over the last
    week by the hour, for the learner's page; 2 kB, without jobs, users or names. Off: only how many jobs there are."""
    tell_baselines: bool = True
    """Whether heartbeats carry what the last week of a real cluster would have been under FIFO with EASY backfill and
    under the fallback, replayed from its decision log in a process of its own: average times and load, 3 kB, no job by
    itself. It takes turns with lessons in their share of a core (`learning.twin.cpu_percent`). Needs `tell_load` and
    `decision_log`."""
    unsigned_versions: Literal["refuse", "allow"] = "refuse"
    """Whether a version without the fleet's signature may act. `allow` is for the time of an upgrade, with a learner
    that does not sign yet: once a signature was seen, every version needs one."""
    rollouts: Literal["follow", "shadow-only", "off"] = "follow"
    """What a rollout may ask of this cluster. `shadow-only`: a candidate's decisions may be computed, and never carried
    out. `off`: neither. The learner hears of it; versions that are assigned act all the same."""
    workload_sketch: bool = False
    """Whether the learner is told once a day what kind of work this cluster has, for the gate of rollouts: machines,
    jobs a day, and rounded quantiles of sizes and lengths by kind; no name, no user, no single job. Off: nothing is."""
    twin_cpu_percent: float = Field(5.0, ge=0.0, le=100.0)
    """Of a core that the twin may take, which replays the blocks of a rollout in a process of its own so that verdicts
    come sooner; it works after a block, for minutes. 0: blocks are reported without its figures."""
    retry: RetrySettings = RetrySettings()
    tls: ClientTlsSettings | None = None
    """Certificates that were made elsewhere. Without this and `enrollment_file` all is plain text, in which the learner
    believes a name on loopback only."""
    enrollment_file: Path | None = None
    """What `policyctl cluster enroll` wrote: traded once for a certificate, which is kept in the state directory and
    renewed by itself. The file may go then; a newer one means to enroll again."""
    enroll_address: Address | None = None
    """`host:port` to enroll at; the host of `address` and the enrollment file's port unless set."""

    @model_validator(mode="after")
    def _one_identity(self) -> LearnerConnectionSettings:
        if self.tls is not None and self.enrollment_file is not None:
            raise ValueError("tls and enrollment_file are two ways to the same end: set one")
        return self


class SharingSettings(Section):
    """What this cluster tells its fleet of speeds: job type, kind, tasks, mean log speed, count, and nothing else."""

    enabled: bool = True
    """Whether anything is told. Off, what this cluster told before is taken back at the next registration."""
    every_seconds: float = Field(60.0, gt=0.0, le=7 * 24 * 3600.0)
    """Least time between two reports, each of at most 150 kB, and none where nothing has changed."""
    job_types: tuple[str, ...] | None = None
    """Only these types are told, under these names, which every cluster of the fleet can then read; all unless set."""

    def shares(self, job_type: str) -> bool:
        """Whether a type is told."""
        return self.enabled and (self.job_types is None or job_type in self.job_types)


class DecisionLogSettings(Section):
    """The record that every decision can be recomputed from."""

    enabled: bool = True
    """Whether decisions are written down at all; without the log none can be made again."""
    max_bytes: Constant[int] = Field(64_000_000, ge=1_000)
    """A file is closed beyond this size; at about 10 kB a decision, two months of ticks. Only one that holds a single
    decision and its checkpoint may be larger."""
    keep: int = Field(8, ge=1, le=10_000)
    """How many closed files are kept."""
    keep_policies: int = Field(32, ge=0, le=100_000)
    """How many policy files that decisions were made with are kept beside the log, the newest active; a megabyte
    each. Decisions of older ones can be made again from the learner's files."""


class AgentTelemetrySettings(Section):
    """What the agent says about itself."""

    metrics_port: int | None = Field(None, ge=0, le=65535)
    """Prometheus metrics on this port, beside /healthz (the loop turns) and /readyz (it could decide); none unless set,
    0 takes a free one."""
    metrics_host: str = "127.0.0.1"
    """Loopback unless set."""
    alive_seconds: Constant[Seconds] = 900.0
    """Where the decision loop has not turned for so long, /healthz answers 503. No step of it takes a tenth of this; a
    slow agent that is started anew is slower still."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """One line a decision is at `info`; a simulation makes thousands."""


class AgentSettings(Section):
    """Everything about one agent."""

    cluster: ClusterName
    """The cluster's name, unique in its fleet: lower case, digits, `-` and `.`."""
    state_dir: Path
    """Where the agent keeps what must outlive it: log, policies, the simulated cluster, the summary."""
    learner: LearnerConnectionSettings | None = None
    """None: the agent schedules alone."""
    backend: BackendSettings
    policy: PolicySettings = PolicySettings()
    guard: GuardSettings = GuardSettings()
    learning: LearningSettings = LearningSettings()
    privacy: NoiseSettings | None = None
    """Noise that this agent adds to its own updates before they leave, for those who do not trust the learner; none
    unless set. What else leaves (`sharing`, heartbeats, rollouts) is not covered."""
    sharing: SharingSettings = SharingSettings()
    decision_log: DecisionLogSettings = DecisionLogSettings()
    telemetry: AgentTelemetrySettings = AgentTelemetrySettings()

    @model_validator(mode="after")
    def _something_can_decide(self) -> AgentSettings:
        if self.policy.initial is None and self.learner is None:
            raise ValueError("policy.initial must name a policy where there is no learner to fetch one from")
        if self.learns and self.learning.source == "twin" and not self.decision_log.enabled:
            raise ValueError(
                "learning.source is twin, which replays what the decision log shows, and decision_log.enabled is off: "
                "leave one of the two out"
            )
        if self.privacy is not None and not self.learns:
            raise ValueError(
                "privacy is noise on what this cluster teaches, and it teaches nothing (no learner, or "
                "learning.enabled is off): leave privacy out"
            )
        return self

    @property
    def learns(self) -> bool:
        """Whether gradients are computed and pushed."""
        return self.learner is not None and self.learning.enabled
