"""Settings of a backend. A simulated cluster's are its workloads, its machines, and how fast its clock runs.

No backend is imported here: a configuration is checked before the backend that it names is loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, field_validator, model_validator

from foundation.files import is_file
from policy_net.domain import CapacityMode
from policy_net.settings import Constant, Seconds, Section


class EpisodeSettings(Section):
    """One workload and how it is read."""

    source: str
    """What to run: a csv, a recording (`sacct:FILE`), `reference:TRACE@FILE`, or `dl2:jobs=60,arrivals=google`."""
    strict: Constant[bool] = False
    """Whether a malformed row of a recording is refused; else it is skipped, and a warning says so."""
    seed: int = Field(0, ge=0)
    """Draws what the source leaves open (generated jobs, models of a csv's jobs); one more in each further round."""
    window: int = Field(0, ge=0)
    """Which run of `limit_jobs` jobs of a csv is taken; the first is 0."""
    limit_jobs: int | None = Field(None, ge=1)
    """At most so many jobs; all of them unless set."""
    job_kind: Literal["ps", "async", "allreduce", "mix"] = "allreduce"
    """How recorded jobs train: by allreduce as most of today's, ps or async; mix: half ps, half allreduce, drawn from
    the seed."""
    arrival_scale: float = Field(1.0, gt=0.0, le=1000.0)
    """Multiplies the times between arrivals; 1 leaves the workload as it is."""
    durations: str = "known"
    """What users know of their jobs' work: `known`, `lognormal:SIGMA` (off by that much) or `unknown`."""
    epoch_error: Constant[float] = Field(0.0, ge=0.0, lt=1.0)
    """Declared epochs are off by up to this share; DL2 tried 0.2."""


class EnvironmentSettings(Section):
    """The simulated machines, and when decisions are taken."""

    nodes: int | None = Field(None, ge=1, le=100_000)
    """Machines; unless set, those that a recorded log names, else what the workload suggests, else an error."""
    gpus_per_node: int | None = Field(None, ge=0, le=64)
    """GPUs of one machine; unless set, what a recorded log shows, else 2, and the agent's log says so."""
    cpus_per_node: int | None = Field(None, ge=1, le=1024)
    """CPU cores of one machine; unless set 8 or, for recorded jobs, what the log shows, at least 4 a GPU."""
    slot_seconds: Seconds = 1200.0
    """The slot, or the tick of event decisions, in simulated seconds; 20 minutes, DL2's."""
    decide_on: Constant[Literal["slot", "event"] | None] = None
    """`slot` for generated workloads and `event` for traces unless set: most real jobs are shorter than a slot."""
    debounce_seconds: Constant[float] = Field(60.0, ge=0.0, le=3600.0)
    """Least time between two event decisions; a minute costs 0.3% and saves most of the resizes of a burst."""
    capacity_mode: CapacityMode = CapacityMode.NODES
    """`nodes` places every task on a machine, as a real cluster must; `pooled` only adds up."""
    speed_noise: Constant[float] = Field(0.0, ge=0.0, le=1.0)
    """Relative deviation of a job's speed in one interval; 0 is exact."""
    job_noise: Constant[float] = Field(0.0, ge=0.0, le=1.0)
    """Relative deviation of a factor that a job's speed keeps for life; 0.273 varies like DL2's production cluster."""
    placement: Constant[Literal["spread", "pack"]] = "spread"
    """`spread` puts tasks on the least loaded nodes, `pack` a job's workers on as few as possible."""
    locality: Constant[bool] = False
    """Whether all-reduce jobs train slower where their workers lie apart; needs capacity on nodes."""
    resize_seconds: Constant[float] = Field(0.0, ge=0.0, le=86_400.0)
    """Pause of a running job whose number of tasks changes; near 0 elastically, tens of seconds by a restart."""
    resume_seconds: Constant[float] = Field(0.0, ge=0.0, le=86_400.0)
    """Pause of a job that starts again after a suspension or the loss of a node."""
    start_seconds: Constant[float] = Field(0.0, ge=0.0, le=86_400.0)
    """Pause of a job's first start; free unless set, as recorded durations include it."""
    checkpoint_seconds: Constant[float] = Field(0.0, ge=0.0, le=86_400.0)
    """Training time between checkpoints, which is what a lost node can cost a job; 0: nothing is ever lost."""
    node_mtbf_hours: Constant[float] = Field(0.0, ge=0.0)
    """Mean time of a node to its failure; 0 for none."""
    node_repair_hours: Constant[float] = Field(1.0, ge=0.0)
    """Mean time of a failed node to its return; an hour, a reboot and some waiting."""
    seed: Constant[int] = Field(0, ge=0)
    """Draws the noise and the failures."""


class LockstepPace(Section):
    """The simulated clock waits for the trainer: as much learning per decision on a slow machine as on a fast one."""

    kind: Literal["lockstep"] = "lockstep"
    backlog_decisions: Constant[int] = 2
    """The clock stands while more decisions than this wait to be learned from; 2 overlaps deciding and learning."""
    patience_seconds: Constant[Seconds] = 15.0
    """Longest wait while the trainer gets nothing done, as when the learner is away; then the run goes on without."""


class ScaledPace(Section):
    """The simulated clock runs so many times faster than the wall clock."""

    kind: Literal["scaled"] = "scaled"
    speedup: float = Field(gt=0.0)
    """Simulated seconds per second."""


class FreePace(Section):
    """The simulated clock waits for nobody."""

    kind: Literal["free"] = "free"


class SimulatedBackendSettings(Section):
    """A cluster that exists in this process only."""

    kind: Literal["simulated"] = "simulated"
    workloads: tuple[EpisodeSettings, ...] = Field(min_length=1)
    """Run one after another, each until all of its jobs are done."""
    episodes: int | None = Field(None, ge=1, le=100_000)
    """How many to run, going round the list with fresh seeds; each of the list once unless set. All are drawn at the
    start and held in memory: 60 generated jobs take some 20 kB."""
    environment: EnvironmentSettings = EnvironmentSettings()
    speeds: Path | None = None
    """A table of measured speeds (csv) as the cluster's truth; the built-in fit of DL2's models unless set."""
    pace: Annotated[LockstepPace | ScaledPace | FreePace, Field(discriminator="kind")] = FreePace()
    baseline: bool = True
    """Replay the fallback on the same jobs beside the run, to report its average JCT."""
    wait_for_twin: bool = False
    """Whether the clock stands while the twin works on the blocks of a rollout, so that each has its figures on a slow
    or busy machine too. The twin then has the agent's priority."""


class LocalBackendSettings(Section):
    """This machine: its jobs are processes that people submit with `cluster-agent submit`."""

    kind: Literal["local"] = "local"
    cpu_milli: int | None = Field(None, ge=1)
    """Millicores that there are; what this process may use unless set."""
    reserved_cpu_milli: int = Field(0, ge=0)
    """Of these, millicores that no job gets."""
    gpus: int | None = Field(None, ge=0, le=64)
    """GPUs that jobs may have, the first ones; all that NVIDIA's library finds unless set, none without it."""
    cgroup: Path | None = None
    """A folder of a control group (either version), with the cpu controller, that this user may write to: each job is
    kept to its exact millicores there. Without one, a job is kept to as many whole cores as its millicores begin."""
    slot_seconds: Seconds = 30.0
    """The tick of decisions where nothing else happens."""
    debounce_seconds: float = Field(2.0, ge=0.0, le=3600.0)
    """Least time between two decisions, so that several submissions in a row are one."""
    resize_seconds: Seconds = 30.0
    """Longest wait for a running job to change its size; then it keeps what it has, and the others go on."""
    grace_seconds: float = Field(10.0, ge=0.0, le=3600.0)
    """From SIGTERM to SIGKILL of a script without parameter servers that is cancelled, or held by its user."""
    until_done: Constant[bool] = False
    """Whether the agent ends once jobs were submitted and all have ended; for demonstrations and measurements."""
    socket: Path | None = None
    """Where users' commands reach the agent; $XDG_STATE_HOME/fedl2/agent/jobs.sock, or below ~/.local/state, unless
    set. Its folder is made, for this user alone."""
    start_seconds: Seconds = 120.0
    """Longest wait for a job to start or to go on; it imports, and reads its data, first."""


def _time_of_day(found: Any) -> Any:
    """YAML without quotes reads 22:00 as a number to the base of 60."""
    text = f"{found // 60:02}:{found % 60:02}" if type(found) is int else str(found)
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        raise ValueError(f"{found!r} is no time of day: write HH:MM, such as 22:00")
    return text


TimeOfDay = Annotated[str, BeforeValidator(_time_of_day)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)


class MaintenanceWindow(Section):
    """A time of the week in which no size changes."""

    days: tuple[Day, ...] = Field(DAYS, min_length=1)
    """On which it begins; all unless set."""
    begin: TimeOfDay = Field(alias="from")
    """When it begins, such as 22:00."""
    end: TimeOfDay = Field(alias="to")
    """When it ends; at or before `from`, it ends on the next day. 00:00 to 00:00 is a whole day."""
    timezone: str = "UTC"
    """An IANA name, such as Europe/Berlin."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no time zone here: use an IANA name, such as Europe/Berlin") from error
        return name


class KubernetesLimits(Section):
    """Limits of changes to jobs whose sizes the agent sets; who opted in or is frozen stands on the objects."""

    changes_per_hour: int = Field(6, ge=1, le=3600)
    """Most changes of a running job's size in an hour, of each job: every one costs it seconds of training. Starts are
    not counted."""
    maintenance: tuple[MaintenanceWindow, ...] = ()
    """Times in which no size changes."""
    min_shares: dict[str, Annotated[float, Field(gt=0.0, le=1.0)]] = Field(default_factory=dict)
    """By namespace, the share of the cluster's CPU or GPUs, whichever is larger, that its jobs have at least while they
    can use it."""
    room_seconds: Constant[Seconds] = 120.0
    """Longest wait of a job that is to grow for the pods of others to be gone; then it gets what there is. Pods have
    30 s to end unless they say otherwise."""

    @field_validator("min_shares")
    @classmethod
    def _leave_capacity(cls, shares: dict[str, float]) -> dict[str, float]:
        if sum(shares.values()) > 1.0 + 1e-9:
            raise ValueError(f"the shares add up to {sum(shares.values()):g}: promise no more than 1")
        return shares


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


HostAccessWord = Literal["hostNetwork", "hostPID", "hostIPC", "hostPath", "hostPort", "nodeName", "privileged"]
"""What a pod may have of its node. `nodeName` goes round the scheduler, so neither taints nor free capacity count;
`privileged` is also more capabilities, an unmasked /proc, no seccomp or AppArmor, or another SELinux label."""


class TemplateRights(Section):
    """What templates of TrainingJobs may ask for beyond an ordinary pod."""

    service_accounts: tuple[str, ...] = ()
    """Besides `default`: a pod has its service account's rights."""
    host_access: tuple[HostAccessWord, ...] = ()
    """Of the node: multi-node NCCL often needs `hostNetwork` or `hostIPC`; all others are worth the whole node."""
    priority_classes: tuple[str, ...] = ()
    """Whose pods come before others' and may push them out."""


class KubernetesTraining(Section):
    """TrainingJobs: jobs whose pods the agent makes."""

    key_file: Path | None = None
    """At least 32 random bytes, from which the tokens and certificates of jobs follow; agents that stand by for one
    another have the same. Made in the state directory unless set. A file that is changed while the agent runs is
    refused: jobs that run have the key before."""
    earlier_key_files: tuple[Path, ...] = ()
    """Keys that were in `key_file` before, the newest first, for jobs that began with them; a file may go when the last
    of these has ended."""
    last_checkpoint_seconds: Seconds = 300.0
    """Longest wait for the last checkpoint of a job that was deleted, if it asks for one (`checkpoints.lastOnDelete`);
    then it goes without. Large models take minutes to be written."""
    rights: dict[str, TemplateRights] = Field(default_factory=dict)
    """By namespace, `*` for all: what templates may ask for beyond an ordinary pod. Nothing unless set."""
    refuse_unlisted: bool = False
    """Refuse jobs whose templates ask for more. A condition, `Permitted`, says what would be refused until this is set;
    the next release refuses it unless it is set to false."""

    @field_validator("rights")
    @classmethod
    def _are_of_namespaces(cls, rights: dict[str, TemplateRights]) -> dict[str, TemplateRights]:
        for name in rights:
            if name != "*" and not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{name!r} is no namespace: use its name, or '*' for all of them")
        return rights


_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")


class OwnNodes(Section):
    """Nodes on which no pods run but those of `namespaces`, and daemons."""

    selector: str = Field(min_length=1)
    """A label selector (`pool=research`)."""
    reserved: dict[str, str] = Field(default_factory=dict)
    """What daemons take on each of them, as requests (`{cpu: 500m, memory: 1Gi}`): their pods are in other namespaces,
    and not seen."""

    @field_validator("reserved")
    @classmethod
    def _are_quantities(cls, reserved: dict[str, str]) -> dict[str, str]:
        for name, amount in reserved.items():
            if not _QUANTITY.fullmatch(amount):
                raise ValueError(f"{name}: {amount!r} is no quantity: write one such as 500m or 1Gi")
        return reserved


class KubernetesBackendSettings(Section):
    """A Kubernetes cluster: recommends sizes for the jobs that ElasticTargets point at, and sets those that it may."""

    kind: Literal["kubernetes"] = "kubernetes"
    kubeconfig: Path | None = None
    """A kubeconfig file; the pod's service account unless set, outside a pod $KUBECONFIG or ~/.kube/config."""
    context: str = ""
    """Of the kubeconfig; its current one unless set."""
    namespaces: tuple[str, ...] = ()
    """Whose ElasticTargets and TrainingJobs are looked after, each namespace by itself; those of all unless set. Nodes
    and pods are read everywhere, since what others take is not free, unless there are `own_nodes`."""
    own_nodes: OwnNodes | None = None
    """Decide about these nodes only, and read pods in `namespaces` only. All nodes, and all pods, unless set."""
    lease_namespace: str = ""
    """Where agents of one cluster agree by a Lease which of them acts; the others stand by. Unless set there is no
    Lease, and only one agent may run."""
    lease_name: str = Field("fedl2-agent", min_length=1)
    """Of that Lease."""
    slot_seconds: Seconds = 300.0
    """The tick of decisions where nothing else happens; on traces 300 s cost 2% against deciding at every event."""
    debounce_seconds: float = Field(10.0, ge=0.0, le=3600.0)
    """Least time between two decisions, so that what is applied together is one event."""
    request_seconds: Constant[Seconds] = 10.0
    """Longest wait for an answer of the API server."""
    limits: KubernetesLimits = KubernetesLimits()
    """For jobs whose sizes are set."""
    training: KubernetesTraining | None = None
    """Look after TrainingJobs too; not unless set (`training: {}`)."""

    @model_validator(mode="before")
    @classmethod
    def _of_one_namespace(cls, values: Any) -> Any:
        """Read `namespace`, the setting of before for one of them; left out, it would let the agent at all."""
        if not isinstance(values, dict) or "namespace" not in values:
            return values
        others = {name: value for name, value in values.items() if name != "namespace"}
        if not isinstance(values["namespace"], str):
            raise ValueError("namespace: use text")  # noqa: TRY004  (a problem of the file, as others)
        if not values["namespace"]:
            return others
        if others.get("namespaces"):
            raise ValueError("namespace and namespaces both say whose jobs: use namespaces alone")
        return {**others, "namespaces": [values["namespace"]]}

    @field_validator("namespaces")
    @classmethod
    def _are_namespaces(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{name!r} is no namespace: use lower case letters, digits and -, at most 63 of them")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{twice[0]} is there twice: name each namespace once")
        return names

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.own_nodes is not None and not self.namespaces:
            raise ValueError("own_nodes needs namespaces: with all of them, all pods are read")
        return self


def _with_usual_kind(content: Any) -> Any:
    """A section that says no kind is a simulated cluster's, as it was when there was no other."""
    return {"kind": "simulated", **content} if isinstance(content, dict) else content


BackendSettings = Annotated[
    SimulatedBackendSettings | LocalBackendSettings | KubernetesBackendSettings,
    Field(discriminator="kind"),
    BeforeValidator(_with_usual_kind),
]
"""The settings of any kind of backend."""


def resolved_source(source: str, folder: Path) -> str:
    """A workload's source with the paths in it, if any are, taken from the folder."""
    if is_file(folder / source):
        return str(folder / source)
    name, colon, text = source.partition(":")
    begin, text = (f"{name}:", text) if colon else ("", source)
    if text and is_file(folder / text):
        return f"{begin}{folder / text}"
    # TRACE@FILE of reference traces, FILE@VC of recordings, TASKS@JOBS of two tables
    return begin + "@".join(
        str(folder / part) if part and is_file(folder / part) else part for part in text.rsplit("@", 1)
    )
