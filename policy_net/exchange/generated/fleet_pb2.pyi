from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SignedDocument(_message.Message):
    __slots__ = ("payload", "signatures")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signatures: _containers.RepeatedCompositeFieldContainer[Signature]
    def __init__(self, payload: _Optional[bytes] = ..., signatures: _Optional[_Iterable[_Union[Signature, _Mapping]]] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("key", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("cluster", "spec_digest", "job_types")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    spec_digest: str
    job_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster: _Optional[str] = ..., spec_digest: _Optional[str] = ..., job_types: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("incarnation", "spec_json", "spec_digest", "head_step", "assigned_version", "learning", "rounds", "timestamp", "duty", "fleets")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNING_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DUTY_FIELD_NUMBER: _ClassVar[int]
    FLEETS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    spec_json: str
    spec_digest: str
    head_step: int
    assigned_version: int
    learning: bool
    rounds: bool
    timestamp: SignedDocument
    duty: RolloutDuty
    fleets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnation: _Optional[int] = ..., spec_json: _Optional[str] = ..., spec_digest: _Optional[str] = ..., head_step: _Optional[int] = ..., assigned_version: _Optional[int] = ..., learning: _Optional[bool] = ..., rounds: _Optional[bool] = ..., timestamp: _Optional[_Union[SignedDocument, _Mapping]] = ..., duty: _Optional[_Union[RolloutDuty, _Mapping]] = ..., fleets: _Optional[_Iterable[str]] = ...) -> None: ...

class PullHeadRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "have_step", "have")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HAVE_STEP_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    have_step: int
    have: bool
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., have_step: _Optional[int] = ..., have: _Optional[bool] = ...) -> None: ...

class PullHeadReply(_message.Message):
    __slots__ = ("step", "weights", "spec_digest", "unchanged")
    STEP_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    step: int
    weights: bytes
    spec_digest: str
    unchanged: bool
    def __init__(self, step: _Optional[int] = ..., weights: _Optional[bytes] = ..., spec_digest: _Optional[str] = ..., unchanged: _Optional[bool] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "sequence", "base_step", "spec_digest", "gradient", "samples", "effective_samples", "statistics", "want_weights", "replayed")
    class StatisticsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_STEP_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    WANT_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    sequence: int
    base_step: int
    spec_digest: str
    gradient: bytes
    samples: int
    effective_samples: float
    statistics: _containers.ScalarMap[str, float]
    want_weights: bool
    replayed: bool
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., base_step: _Optional[int] = ..., spec_digest: _Optional[str] = ..., gradient: _Optional[bytes] = ..., samples: _Optional[int] = ..., effective_samples: _Optional[float] = ..., statistics: _Optional[_Mapping[str, float]] = ..., want_weights: _Optional[bool] = ..., replayed: _Optional[bool] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("outcome", "reason", "head_step", "weights", "staleness")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[PushReply.Outcome]
        APPLIED: _ClassVar[PushReply.Outcome]
        DUPLICATE: _ClassVar[PushReply.Outcome]
        REJECTED: _ClassVar[PushReply.Outcome]
    OUTCOME_UNSPECIFIED: PushReply.Outcome
    APPLIED: PushReply.Outcome
    DUPLICATE: PushReply.Outcome
    REJECTED: PushReply.Outcome
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    outcome: PushReply.Outcome
    reason: str
    head_step: int
    weights: bytes
    staleness: int
    def __init__(self, outcome: _Optional[_Union[PushReply.Outcome, str]] = ..., reason: _Optional[str] = ..., head_step: _Optional[int] = ..., weights: _Optional[bytes] = ..., staleness: _Optional[int] = ...) -> None: ...

class JobTimeline(_message.Message):
    __slots__ = ("number", "job_type", "held", "interventions", "resizes", "seconds", "completed")
    class Held(_message.Message):
        __slots__ = ("seconds", "workers", "ps")
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        WORKERS_FIELD_NUMBER: _ClassVar[int]
        PS_FIELD_NUMBER: _ClassVar[int]
        seconds: float
        workers: int
        ps: int
        def __init__(self, seconds: _Optional[float] = ..., workers: _Optional[int] = ..., ps: _Optional[int] = ...) -> None: ...
    class Intervention(_message.Message):
        __slots__ = ("seconds", "reason")
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        seconds: float
        reason: str
        def __init__(self, seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    INTERVENTIONS_FIELD_NUMBER: _ClassVar[int]
    RESIZES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    number: int
    job_type: str
    held: _containers.RepeatedCompositeFieldContainer[JobTimeline.Held]
    interventions: _containers.RepeatedCompositeFieldContainer[JobTimeline.Intervention]
    resizes: int
    seconds: float
    completed: bool
    def __init__(self, number: _Optional[int] = ..., job_type: _Optional[str] = ..., held: _Optional[_Iterable[_Union[JobTimeline.Held, _Mapping]]] = ..., interventions: _Optional[_Iterable[_Union[JobTimeline.Intervention, _Mapping]]] = ..., resizes: _Optional[int] = ..., seconds: _Optional[float] = ..., completed: _Optional[bool] = ...) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("time_seconds", "decisions", "jobs_running", "jobs_waiting", "jobs_done", "avg_jct_seconds", "baseline_jct_seconds", "acting_version", "learning_step", "guard_interventions", "finished", "jobs_total", "job_timelines", "baseline_policy", "refused_version", "refused_reason", "rollout", "rollout_role", "beside_version", "simulated", "load", "baselines", "replayed")
    class GuardInterventionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    JOBS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    JOBS_WAITING_FIELD_NUMBER: _ClassVar[int]
    JOBS_DONE_FIELD_NUMBER: _ClassVar[int]
    AVG_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNING_STEP_FIELD_NUMBER: _ClassVar[int]
    GUARD_INTERVENTIONS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    JOBS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    JOB_TIMELINES_FIELD_NUMBER: _ClassVar[int]
    BASELINE_POLICY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_REASON_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_ROLE_FIELD_NUMBER: _ClassVar[int]
    BESIDE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    time_seconds: float
    decisions: int
    jobs_running: int
    jobs_waiting: int
    jobs_done: int
    avg_jct_seconds: float
    baseline_jct_seconds: float
    acting_version: int
    learning_step: int
    guard_interventions: _containers.ScalarMap[str, int]
    finished: bool
    jobs_total: int
    job_timelines: _containers.RepeatedCompositeFieldContainer[JobTimeline]
    baseline_policy: str
    refused_version: int
    refused_reason: str
    rollout: int
    rollout_role: str
    beside_version: int
    simulated: bool
    load: _containers.RepeatedCompositeFieldContainer[LoadCurve]
    baselines: _containers.RepeatedCompositeFieldContainer[BaselineTime]
    replayed: ReplayedPast
    def __init__(self, time_seconds: _Optional[float] = ..., decisions: _Optional[int] = ..., jobs_running: _Optional[int] = ..., jobs_waiting: _Optional[int] = ..., jobs_done: _Optional[int] = ..., avg_jct_seconds: _Optional[float] = ..., baseline_jct_seconds: _Optional[float] = ..., acting_version: _Optional[int] = ..., learning_step: _Optional[int] = ..., guard_interventions: _Optional[_Mapping[str, int]] = ..., finished: _Optional[bool] = ..., jobs_total: _Optional[int] = ..., job_timelines: _Optional[_Iterable[_Union[JobTimeline, _Mapping]]] = ..., baseline_policy: _Optional[str] = ..., refused_version: _Optional[int] = ..., refused_reason: _Optional[str] = ..., rollout: _Optional[int] = ..., rollout_role: _Optional[str] = ..., beside_version: _Optional[int] = ..., simulated: _Optional[bool] = ..., load: _Optional[_Iterable[_Union[LoadCurve, _Mapping]]] = ..., baselines: _Optional[_Iterable[_Union[BaselineTime, _Mapping]]] = ..., replayed: _Optional[_Union[ReplayedPast, _Mapping]] = ...) -> None: ...

class LoadCurve(_message.Message):
    __slots__ = ("policy", "begin_seconds", "step_seconds", "gpus_used", "jobs_waiting", "gpus", "ended", "nearly_done_seconds")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GPUS_USED_FIELD_NUMBER: _ClassVar[int]
    JOBS_WAITING_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NEARLY_DONE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    begin_seconds: float
    step_seconds: float
    gpus_used: _containers.RepeatedScalarFieldContainer[float]
    jobs_waiting: _containers.RepeatedScalarFieldContainer[float]
    gpus: _containers.RepeatedScalarFieldContainer[float]
    ended: bool
    nearly_done_seconds: float
    def __init__(self, policy: _Optional[str] = ..., begin_seconds: _Optional[float] = ..., step_seconds: _Optional[float] = ..., gpus_used: _Optional[_Iterable[float]] = ..., jobs_waiting: _Optional[_Iterable[float]] = ..., gpus: _Optional[_Iterable[float]] = ..., ended: _Optional[bool] = ..., nearly_done_seconds: _Optional[float] = ...) -> None: ...

class BaselineTime(_message.Message):
    __slots__ = ("policy", "avg_jct_seconds")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    AVG_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    avg_jct_seconds: float
    def __init__(self, policy: _Optional[str] = ..., avg_jct_seconds: _Optional[float] = ...) -> None: ...

class ReplayedPast(_message.Message):
    __slots__ = ("begin_seconds", "end_seconds", "jobs", "avg_jct_seconds", "twin_jct_seconds", "baselines", "load")
    BEGIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    AVG_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TWIN_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    begin_seconds: float
    end_seconds: float
    jobs: int
    avg_jct_seconds: float
    twin_jct_seconds: float
    baselines: _containers.RepeatedCompositeFieldContainer[BaselineTime]
    load: _containers.RepeatedCompositeFieldContainer[LoadCurve]
    def __init__(self, begin_seconds: _Optional[float] = ..., end_seconds: _Optional[float] = ..., jobs: _Optional[int] = ..., avg_jct_seconds: _Optional[float] = ..., twin_jct_seconds: _Optional[float] = ..., baselines: _Optional[_Iterable[_Union[BaselineTime, _Mapping]]] = ..., load: _Optional[_Iterable[_Union[LoadCurve, _Mapping]]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "status")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    status: ClusterStatus
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., status: _Optional[_Union[ClusterStatus, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("assigned_version", "head_step", "reregister", "timestamp", "duty", "fleets", "lost_digest")
    ASSIGNED_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    REREGISTER_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DUTY_FIELD_NUMBER: _ClassVar[int]
    FLEETS_FIELD_NUMBER: _ClassVar[int]
    LOST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    assigned_version: int
    head_step: int
    reregister: bool
    timestamp: SignedDocument
    duty: RolloutDuty
    fleets: _containers.RepeatedScalarFieldContainer[str]
    lost_digest: str
    def __init__(self, assigned_version: _Optional[int] = ..., head_step: _Optional[int] = ..., reregister: _Optional[bool] = ..., timestamp: _Optional[_Union[SignedDocument, _Mapping]] = ..., duty: _Optional[_Union[RolloutDuty, _Mapping]] = ..., fleets: _Optional[_Iterable[str]] = ..., lost_digest: _Optional[str] = ...) -> None: ...

class RolloutDuty(_message.Message):
    __slots__ = ("rollout", "role", "beside_version", "seed", "block_seconds", "washout_seconds")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BESIDE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WASHOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    rollout: int
    role: str
    beside_version: int
    seed: int
    block_seconds: float
    washout_seconds: float
    def __init__(self, rollout: _Optional[int] = ..., role: _Optional[str] = ..., beside_version: _Optional[int] = ..., seed: _Optional[int] = ..., block_seconds: _Optional[float] = ..., washout_seconds: _Optional[float] = ...) -> None: ...

class SwitchbackBlock(_message.Message):
    __slots__ = ("number", "candidate", "jobs", "usual_jobs", "jobs_at_start", "arrivals", "has_twin", "twin_priced", "twin_incumbent", "twin_candidate", "guard_share", "starved_jobs", "latency_p99_seconds", "decisions", "begin_seconds", "end_seconds")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USUAL_JOBS_FIELD_NUMBER: _ClassVar[int]
    JOBS_AT_START_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_FIELD_NUMBER: _ClassVar[int]
    HAS_TWIN_FIELD_NUMBER: _ClassVar[int]
    TWIN_PRICED_FIELD_NUMBER: _ClassVar[int]
    TWIN_INCUMBENT_FIELD_NUMBER: _ClassVar[int]
    TWIN_CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    GUARD_SHARE_FIELD_NUMBER: _ClassVar[int]
    STARVED_JOBS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    candidate: bool
    jobs: float
    usual_jobs: float
    jobs_at_start: float
    arrivals: float
    has_twin: bool
    twin_priced: float
    twin_incumbent: float
    twin_candidate: float
    guard_share: float
    starved_jobs: int
    latency_p99_seconds: float
    decisions: int
    begin_seconds: float
    end_seconds: float
    def __init__(self, number: _Optional[int] = ..., candidate: _Optional[bool] = ..., jobs: _Optional[float] = ..., usual_jobs: _Optional[float] = ..., jobs_at_start: _Optional[float] = ..., arrivals: _Optional[float] = ..., has_twin: _Optional[bool] = ..., twin_priced: _Optional[float] = ..., twin_incumbent: _Optional[float] = ..., twin_candidate: _Optional[float] = ..., guard_share: _Optional[float] = ..., starved_jobs: _Optional[int] = ..., latency_p99_seconds: _Optional[float] = ..., decisions: _Optional[int] = ..., begin_seconds: _Optional[float] = ..., end_seconds: _Optional[float] = ...) -> None: ...

class ShadowSums(_message.Message):
    __slots__ = ("decisions", "agreed", "failed", "incumbent_interventions", "candidate_interventions", "incumbent_latency_p99_seconds", "candidate_latency_p99_seconds", "believed_gain")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_INTERVENTIONS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_INTERVENTIONS_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_LATENCY_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_LATENCY_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BELIEVED_GAIN_FIELD_NUMBER: _ClassVar[int]
    decisions: int
    agreed: int
    failed: int
    incumbent_interventions: int
    candidate_interventions: int
    incumbent_latency_p99_seconds: float
    candidate_latency_p99_seconds: float
    believed_gain: float
    def __init__(self, decisions: _Optional[int] = ..., agreed: _Optional[int] = ..., failed: _Optional[int] = ..., incumbent_interventions: _Optional[int] = ..., candidate_interventions: _Optional[int] = ..., incumbent_latency_p99_seconds: _Optional[float] = ..., candidate_latency_p99_seconds: _Optional[float] = ..., believed_gain: _Optional[float] = ...) -> None: ...

class ShareEvidenceRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "rollout", "blocks", "shadow")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    rollout: int
    blocks: _containers.RepeatedCompositeFieldContainer[SwitchbackBlock]
    shadow: ShadowSums
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., rollout: _Optional[int] = ..., blocks: _Optional[_Iterable[_Union[SwitchbackBlock, _Mapping]]] = ..., shadow: _Optional[_Union[ShadowSums, _Mapping]] = ...) -> None: ...

class ShareEvidenceReply(_message.Message):
    __slots__ = ("taken", "next_block")
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_BLOCK_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    next_block: int
    def __init__(self, taken: _Optional[bool] = ..., next_block: _Optional[int] = ...) -> None: ...

class TypeStatistics(_message.Message):
    __slots__ = ("job_type", "kind", "ps", "workers", "mean_log_speed", "count")
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MEAN_LOG_SPEED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    job_type: str
    kind: str
    ps: _containers.RepeatedScalarFieldContainer[int]
    workers: _containers.RepeatedScalarFieldContainer[int]
    mean_log_speed: _containers.RepeatedScalarFieldContainer[float]
    count: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_type: _Optional[str] = ..., kind: _Optional[str] = ..., ps: _Optional[_Iterable[int]] = ..., workers: _Optional[_Iterable[int]] = ..., mean_log_speed: _Optional[_Iterable[float]] = ..., count: _Optional[_Iterable[int]] = ...) -> None: ...

class ShareBeliefsRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "revision", "types")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    revision: int
    types: _containers.RepeatedCompositeFieldContainer[TypeStatistics]
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., revision: _Optional[int] = ..., types: _Optional[_Iterable[_Union[TypeStatistics, _Mapping]]] = ...) -> None: ...

class ShareBeliefsReply(_message.Message):
    __slots__ = ("taken", "statistics", "left_out")
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    statistics: int
    left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, taken: _Optional[bool] = ..., statistics: _Optional[int] = ..., left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class KindSketch(_message.Message):
    __slots__ = ("kind", "share", "run_seconds", "workers", "ps")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    RUN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    share: float
    run_seconds: _containers.RepeatedScalarFieldContainer[float]
    workers: _containers.RepeatedScalarFieldContainer[int]
    ps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., share: _Optional[float] = ..., run_seconds: _Optional[_Iterable[float]] = ..., workers: _Optional[_Iterable[int]] = ..., ps: _Optional[_Iterable[int]] = ...) -> None: ...

class WorkloadSketch(_message.Message):
    __slots__ = ("nodes", "gpus_per_node", "cpus_per_node", "jobs_a_day", "day_shares", "kinds")
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    JOBS_A_DAY_FIELD_NUMBER: _ClassVar[int]
    DAY_SHARES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    jobs_a_day: float
    day_shares: _containers.RepeatedScalarFieldContainer[float]
    kinds: _containers.RepeatedCompositeFieldContainer[KindSketch]
    def __init__(self, nodes: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., cpus_per_node: _Optional[int] = ..., jobs_a_day: _Optional[float] = ..., day_shares: _Optional[_Iterable[float]] = ..., kinds: _Optional[_Iterable[_Union[KindSketch, _Mapping]]] = ...) -> None: ...

class ReturnPolicyRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "policy_file")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FILE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    policy_file: bytes
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., policy_file: _Optional[bytes] = ...) -> None: ...

class ReturnPolicyReply(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    def __init__(self, taken: _Optional[bool] = ...) -> None: ...

class ShareSketchRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "sketch")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    sketch: WorkloadSketch
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., sketch: _Optional[_Union[WorkloadSketch, _Mapping]] = ...) -> None: ...

class ShareSketchReply(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    def __init__(self, taken: _Optional[bool] = ...) -> None: ...

class FetchPolicyRequest(_message.Message):
    __slots__ = ("cluster", "version")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    version: int
    def __init__(self, cluster: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class FetchPolicyReply(_message.Message):
    __slots__ = ("version", "policy_file", "digest", "name", "signed", "timestamp", "roots")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FILE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    policy_file: bytes
    digest: str
    name: str
    signed: SignedDocument
    timestamp: SignedDocument
    roots: _containers.RepeatedCompositeFieldContainer[SignedDocument]
    def __init__(self, version: _Optional[int] = ..., policy_file: _Optional[bytes] = ..., digest: _Optional[str] = ..., name: _Optional[str] = ..., signed: _Optional[_Union[SignedDocument, _Mapping]] = ..., timestamp: _Optional[_Union[SignedDocument, _Mapping]] = ..., roots: _Optional[_Iterable[_Union[SignedDocument, _Mapping]]] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("cluster", "incarnation")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class RoundTask(_message.Message):
    __slots__ = ("task", "kind", "weights", "spec_digest", "numbers", "texts")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[RoundTask.Kind]
        TRAIN: _ClassVar[RoundTask.Kind]
        EVALUATE: _ClassVar[RoundTask.Kind]
    KIND_UNSPECIFIED: RoundTask.Kind
    TRAIN: RoundTask.Kind
    EVALUATE: RoundTask.Kind
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TextsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    task: str
    kind: RoundTask.Kind
    weights: bytes
    spec_digest: str
    numbers: _containers.ScalarMap[str, float]
    texts: _containers.ScalarMap[str, str]
    def __init__(self, task: _Optional[str] = ..., kind: _Optional[_Union[RoundTask.Kind, str]] = ..., weights: _Optional[bytes] = ..., spec_digest: _Optional[str] = ..., numbers: _Optional[_Mapping[str, float]] = ..., texts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: RoundTask
    def __init__(self, task: _Optional[_Union[RoundTask, _Mapping]] = ...) -> None: ...

class ReplyRequest(_message.Message):
    __slots__ = ("cluster", "incarnation", "task", "weights", "samples", "metrics", "error")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    task: str
    weights: bytes
    samples: int
    metrics: _containers.ScalarMap[str, float]
    error: str
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., task: _Optional[str] = ..., weights: _Optional[bytes] = ..., samples: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., error: _Optional[str] = ...) -> None: ...

class ReplyReply(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    def __init__(self, taken: _Optional[bool] = ...) -> None: ...

class VersionCard(_message.Message):
    __slots__ = ("version", "head_step", "parent", "digest", "created_unix_seconds", "size_bytes", "updates", "contributions", "staleness_p50", "spec_digest", "details", "score", "pinned", "kept", "head_size_bytes", "signed", "note", "aliases")
    class ContributionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_P50_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    HEAD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    version: int
    head_step: int
    parent: int
    digest: str
    created_unix_seconds: float
    size_bytes: int
    updates: int
    contributions: _containers.ScalarMap[str, int]
    staleness_p50: float
    spec_digest: str
    details: VersionDetails
    score: ReplayScore
    pinned: bool
    kept: bool
    head_size_bytes: int
    signed: SignedDocument
    note: VersionNote
    aliases: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., head_step: _Optional[int] = ..., parent: _Optional[int] = ..., digest: _Optional[str] = ..., created_unix_seconds: _Optional[float] = ..., size_bytes: _Optional[int] = ..., updates: _Optional[int] = ..., contributions: _Optional[_Mapping[str, int]] = ..., staleness_p50: _Optional[float] = ..., spec_digest: _Optional[str] = ..., details: _Optional[_Union[VersionDetails, _Mapping]] = ..., score: _Optional[_Union[ReplayScore, _Mapping]] = ..., pinned: _Optional[bool] = ..., kept: _Optional[bool] = ..., head_size_bytes: _Optional[int] = ..., signed: _Optional[_Union[SignedDocument, _Mapping]] = ..., note: _Optional[_Union[VersionNote, _Mapping]] = ..., aliases: _Optional[_Iterable[str]] = ...) -> None: ...

class VersionNote(_message.Message):
    __slots__ = ("text", "actor", "unix_seconds")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    actor: str
    unix_seconds: float
    def __init__(self, text: _Optional[str] = ..., actor: _Optional[str] = ..., unix_seconds: _Optional[float] = ...) -> None: ...

class VersionDetails(_message.Message):
    __slots__ = ("staleness_p90", "staleness_max", "rejections", "aggregation", "origin", "policy", "prior_statistics", "notes", "privacy")
    class RejectionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STALENESS_P90_FIELD_NUMBER: _ClassVar[int]
    STALENESS_MAX_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PRIOR_STATISTICS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    staleness_p90: float
    staleness_max: int
    rejections: _containers.ScalarMap[str, int]
    aggregation: str
    origin: str
    policy: str
    prior_statistics: int
    notes: str
    privacy: Privacy
    def __init__(self, staleness_p90: _Optional[float] = ..., staleness_max: _Optional[int] = ..., rejections: _Optional[_Mapping[str, int]] = ..., aggregation: _Optional[str] = ..., origin: _Optional[str] = ..., policy: _Optional[str] = ..., prior_statistics: _Optional[int] = ..., notes: _Optional[str] = ..., privacy: _Optional[_Union[Privacy, _Mapping]] = ...) -> None: ...

class Privacy(_message.Message):
    __slots__ = ("mode", "epsilon", "delta", "clip_norm", "noise_multiplier", "updates_of_one_cluster", "unprotected_updates", "target_epsilon", "sampling")
    MODE_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_OF_ONE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    UNPROTECTED_UPDATES_FIELD_NUMBER: _ClassVar[int]
    TARGET_EPSILON_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    mode: str
    epsilon: float
    delta: float
    clip_norm: float
    noise_multiplier: float
    updates_of_one_cluster: int
    unprotected_updates: int
    target_epsilon: float
    sampling: str
    def __init__(self, mode: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., clip_norm: _Optional[float] = ..., noise_multiplier: _Optional[float] = ..., updates_of_one_cluster: _Optional[int] = ..., unprotected_updates: _Optional[int] = ..., target_epsilon: _Optional[float] = ..., sampling: _Optional[str] = ...) -> None: ...

class ReplayScore(_message.Message):
    __slots__ = ("state", "reason", "replay_set", "replay_set_digest", "replays", "over", "cpu_seconds", "scored_unix_seconds", "decisions")
    class OverEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPLAY_SET_FIELD_NUMBER: _ClassVar[int]
    REPLAY_SET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SCORED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: str
    replay_set: str
    replay_set_digest: str
    replays: _containers.RepeatedCompositeFieldContainer[ReplayResult]
    over: _containers.ScalarMap[str, float]
    cpu_seconds: float
    scored_unix_seconds: float
    decisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[str] = ..., replay_set: _Optional[str] = ..., replay_set_digest: _Optional[str] = ..., replays: _Optional[_Iterable[_Union[ReplayResult, _Mapping]]] = ..., over: _Optional[_Mapping[str, float]] = ..., cpu_seconds: _Optional[float] = ..., scored_unix_seconds: _Optional[float] = ..., decisions: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplayResult(_message.Message):
    __slots__ = ("replay", "avg_jct_seconds", "baseline_jct_seconds")
    class BaselineJctSecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    AVG_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    replay: str
    avg_jct_seconds: float
    baseline_jct_seconds: _containers.ScalarMap[str, float]
    def __init__(self, replay: _Optional[str] = ..., avg_jct_seconds: _Optional[float] = ..., baseline_jct_seconds: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ListVersionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListVersionsReply(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[VersionCard]
    def __init__(self, versions: _Optional[_Iterable[_Union[VersionCard, _Mapping]]] = ...) -> None: ...

class ShowVersionRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ShowVersionReply(_message.Message):
    __slots__ = ("card", "spec_json")
    CARD_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    card: VersionCard
    spec_json: str
    def __init__(self, card: _Optional[_Union[VersionCard, _Mapping]] = ..., spec_json: _Optional[str] = ...) -> None: ...

class ClusterView(_message.Message):
    __slots__ = ("cluster", "incarnation", "seconds_since_heard", "updates_accepted", "updates_duplicate", "updates_rejected", "last_staleness", "assigned_version", "status", "held", "quarantined_until_unix_seconds", "identity", "speed_statistics", "speed_observations", "last_finished", "last_acting_version", "contested", "compared")
    class UpdatesRejectedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SECONDS_SINCE_HEARD_FIELD_NUMBER: _ClassVar[int]
    UPDATES_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_REJECTED_FIELD_NUMBER: _ClassVar[int]
    LAST_STALENESS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_UNTIL_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SPEED_STATISTICS_FIELD_NUMBER: _ClassVar[int]
    SPEED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_FINISHED_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTESTED_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incarnation: int
    seconds_since_heard: float
    updates_accepted: int
    updates_duplicate: int
    updates_rejected: _containers.ScalarMap[str, int]
    last_staleness: int
    assigned_version: int
    status: ClusterStatus
    held: bool
    quarantined_until_unix_seconds: float
    identity: str
    speed_statistics: int
    speed_observations: int
    last_finished: bool
    last_acting_version: int
    contested: bool
    compared: Comparison
    def __init__(self, cluster: _Optional[str] = ..., incarnation: _Optional[int] = ..., seconds_since_heard: _Optional[float] = ..., updates_accepted: _Optional[int] = ..., updates_duplicate: _Optional[int] = ..., updates_rejected: _Optional[_Mapping[str, int]] = ..., last_staleness: _Optional[int] = ..., assigned_version: _Optional[int] = ..., status: _Optional[_Union[ClusterStatus, _Mapping]] = ..., held: _Optional[bool] = ..., quarantined_until_unix_seconds: _Optional[float] = ..., identity: _Optional[str] = ..., speed_statistics: _Optional[int] = ..., speed_observations: _Optional[int] = ..., last_finished: _Optional[bool] = ..., last_acting_version: _Optional[int] = ..., contested: _Optional[bool] = ..., compared: _Optional[_Union[Comparison, _Mapping]] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("policy", "policy_jct_seconds", "jobs_done", "avg_jct_seconds")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    JOBS_DONE_FIELD_NUMBER: _ClassVar[int]
    AVG_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    policy_jct_seconds: float
    jobs_done: int
    avg_jct_seconds: float
    def __init__(self, policy: _Optional[str] = ..., policy_jct_seconds: _Optional[float] = ..., jobs_done: _Optional[int] = ..., avg_jct_seconds: _Optional[float] = ...) -> None: ...

class ReleaseClusterRequest(_message.Message):
    __slots__ = ("cluster", "reason")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    reason: str
    def __init__(self, cluster: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseClusterReply(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: bool
    def __init__(self, released: _Optional[bool] = ...) -> None: ...

class AssignVersionRequest(_message.Message):
    __slots__ = ("version", "clusters", "all", "reason", "dry_run", "seen_versions")
    class SeenVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SEEN_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    clusters: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    reason: str
    dry_run: bool
    seen_versions: _containers.ScalarMap[str, int]
    def __init__(self, version: _Optional[int] = ..., clusters: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., seen_versions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("cluster", "from_version", "to_version", "held")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    from_version: int
    to_version: int
    held: bool
    def __init__(self, cluster: _Optional[str] = ..., from_version: _Optional[int] = ..., to_version: _Optional[int] = ..., held: _Optional[bool] = ...) -> None: ...

class AssignVersionReply(_message.Message):
    __slots__ = ("assignments", "pinned", "rollout", "passed_over")
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    pinned: _containers.RepeatedScalarFieldContainer[str]
    rollout: int
    passed_over: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., pinned: _Optional[_Iterable[str]] = ..., rollout: _Optional[int] = ..., passed_over: _Optional[_Iterable[str]] = ...) -> None: ...

class RollBackRequest(_message.Message):
    __slots__ = ("clusters", "all", "reason", "dry_run", "seen_versions", "just_looked")
    class SeenVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SEEN_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    JUST_LOOKED_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    reason: str
    dry_run: bool
    seen_versions: _containers.ScalarMap[str, int]
    just_looked: bool
    def __init__(self, clusters: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., seen_versions: _Optional[_Mapping[str, int]] = ..., just_looked: _Optional[bool] = ...) -> None: ...

class RollBackReply(_message.Message):
    __slots__ = ("assignments", "passed_over")
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    passed_over: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., passed_over: _Optional[_Iterable[str]] = ...) -> None: ...

class PinVersionRequest(_message.Message):
    __slots__ = ("version", "pinned", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    pinned: bool
    reason: str
    def __init__(self, version: _Optional[int] = ..., pinned: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class PinVersionReply(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: _Optional[bool] = ...) -> None: ...

class NoteVersionRequest(_message.Message):
    __slots__ = ("version", "text")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    version: int
    text: str
    def __init__(self, version: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class NoteVersionReply(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: _Optional[bool] = ...) -> None: ...

class RestoreVersionRequest(_message.Message):
    __slots__ = ("version", "file", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    file: bytes
    reason: str
    def __init__(self, version: _Optional[int] = ..., file: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class RestoreVersionReply(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: _Optional[bool] = ...) -> None: ...

class PublishVersionRequest(_message.Message):
    __slots__ = ("policy_file", "note")
    POLICY_FILE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    policy_file: bytes
    note: str
    def __init__(self, policy_file: _Optional[bytes] = ..., note: _Optional[str] = ...) -> None: ...

class PublishVersionReply(_message.Message):
    __slots__ = ("card",)
    CARD_FIELD_NUMBER: _ClassVar[int]
    card: VersionCard
    def __init__(self, card: _Optional[_Union[VersionCard, _Mapping]] = ...) -> None: ...

class AliasVersionRequest(_message.Message):
    __slots__ = ("alias", "version", "move", "reason")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    alias: str
    version: int
    move: bool
    reason: str
    def __init__(self, alias: _Optional[str] = ..., version: _Optional[int] = ..., move: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class AliasVersionReply(_message.Message):
    __slots__ = ("from_version",)
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    from_version: int
    def __init__(self, from_version: _Optional[int] = ...) -> None: ...

class ResetHeadRequest(_message.Message):
    __slots__ = ("version", "reason", "dry_run", "seen_step")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SEEN_STEP_FIELD_NUMBER: _ClassVar[int]
    version: int
    reason: str
    dry_run: bool
    seen_step: int
    def __init__(self, version: _Optional[int] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., seen_step: _Optional[int] = ...) -> None: ...

class ResetHeadReply(_message.Message):
    __slots__ = ("from_step", "head_step", "moments_kept", "changed")
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_KEPT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    from_step: int
    head_step: int
    moments_kept: bool
    changed: bool
    def __init__(self, from_step: _Optional[int] = ..., head_step: _Optional[int] = ..., moments_kept: _Optional[bool] = ..., changed: _Optional[bool] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("unix_seconds", "actor", "action", "subject", "detail", "log", "number", "before", "digest")
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    unix_seconds: float
    actor: str
    action: str
    subject: str
    detail: str
    log: str
    number: int
    before: str
    digest: str
    def __init__(self, unix_seconds: _Optional[float] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., subject: _Optional[str] = ..., detail: _Optional[str] = ..., log: _Optional[str] = ..., number: _Optional[int] = ..., before: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class GetKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetKeysReply(_message.Message):
    __slots__ = ("roots", "root_key_present")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_KEY_PRESENT_FIELD_NUMBER: _ClassVar[int]
    roots: _containers.RepeatedCompositeFieldContainer[SignedDocument]
    root_key_present: bool
    def __init__(self, roots: _Optional[_Iterable[_Union[SignedDocument, _Mapping]]] = ..., root_key_present: _Optional[bool] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("role", "root", "seen_root")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SEEN_ROOT_FIELD_NUMBER: _ClassVar[int]
    role: str
    root: SignedDocument
    seen_root: int
    def __init__(self, role: _Optional[str] = ..., root: _Optional[_Union[SignedDocument, _Mapping]] = ..., seen_root: _Optional[int] = ...) -> None: ...

class RotateKeyReply(_message.Message):
    __slots__ = ("roots", "unsigned_root")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    UNSIGNED_ROOT_FIELD_NUMBER: _ClassVar[int]
    roots: _containers.RepeatedCompositeFieldContainer[SignedDocument]
    unsigned_root: bytes
    def __init__(self, roots: _Optional[_Iterable[_Union[SignedDocument, _Mapping]]] = ..., unsigned_root: _Optional[bytes] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("number", "candidate_version", "phase", "stage", "stages", "reason", "started_unix_seconds", "stage_unix_seconds", "latest_unix_seconds", "actor", "why", "plan_json", "members", "verdicts", "events", "sketches", "queries", "event_number")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STAGE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LATEST_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SKETCHES_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    EVENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    candidate_version: int
    phase: str
    stage: int
    stages: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    started_unix_seconds: float
    stage_unix_seconds: float
    latest_unix_seconds: float
    actor: str
    why: str
    plan_json: str
    members: _containers.RepeatedCompositeFieldContainer[RolloutMember]
    verdicts: _containers.RepeatedCompositeFieldContainer[RolloutVerdict]
    events: _containers.RepeatedCompositeFieldContainer[RolloutEvent]
    sketches: _containers.RepeatedCompositeFieldContainer[RolloutSketch]
    queries: _containers.RepeatedCompositeFieldContainer[RolloutQuery]
    event_number: int
    def __init__(self, number: _Optional[int] = ..., candidate_version: _Optional[int] = ..., phase: _Optional[str] = ..., stage: _Optional[int] = ..., stages: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., started_unix_seconds: _Optional[float] = ..., stage_unix_seconds: _Optional[float] = ..., latest_unix_seconds: _Optional[float] = ..., actor: _Optional[str] = ..., why: _Optional[str] = ..., plan_json: _Optional[str] = ..., members: _Optional[_Iterable[_Union[RolloutMember, _Mapping]]] = ..., verdicts: _Optional[_Iterable[_Union[RolloutVerdict, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[RolloutEvent, _Mapping]]] = ..., sketches: _Optional[_Iterable[_Union[RolloutSketch, _Mapping]]] = ..., queries: _Optional[_Iterable[_Union[RolloutQuery, _Mapping]]] = ..., event_number: _Optional[int] = ...) -> None: ...

class RolloutQuery(_message.Message):
    __slots__ = ("name", "state", "said", "asked_unix_seconds", "answered_unix_seconds", "value", "incumbent_value", "fault", "since_unix_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    ASKED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_VALUE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    said: str
    asked_unix_seconds: float
    answered_unix_seconds: float
    value: float
    incumbent_value: float
    fault: str
    since_unix_seconds: float
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., said: _Optional[str] = ..., asked_unix_seconds: _Optional[float] = ..., answered_unix_seconds: _Optional[float] = ..., value: _Optional[float] = ..., incumbent_value: _Optional[float] = ..., fault: _Optional[str] = ..., since_unix_seconds: _Optional[float] = ...) -> None: ...

class RolloutSketch(_message.Message):
    __slots__ = ("cluster", "state", "reason", "candidate_jct_seconds", "incumbent_jct_seconds", "heuristic_jct_seconds")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEURISTIC_JCT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    state: str
    reason: str
    candidate_jct_seconds: float
    incumbent_jct_seconds: float
    heuristic_jct_seconds: float
    def __init__(self, cluster: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., candidate_jct_seconds: _Optional[float] = ..., incumbent_jct_seconds: _Optional[float] = ..., heuristic_jct_seconds: _Optional[float] = ...) -> None: ...

class RolloutMember(_message.Message):
    __slots__ = ("cluster", "incumbent_version", "role", "acting_version", "away", "blocks", "shadow_decisions", "shadow_agreed", "since_stage", "refused_version", "refused_reason")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ACTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_DECISIONS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_AGREED_FIELD_NUMBER: _ClassVar[int]
    SINCE_STAGE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_REASON_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    incumbent_version: int
    role: str
    acting_version: int
    away: bool
    blocks: int
    shadow_decisions: int
    shadow_agreed: int
    since_stage: int
    refused_version: int
    refused_reason: str
    def __init__(self, cluster: _Optional[str] = ..., incumbent_version: _Optional[int] = ..., role: _Optional[str] = ..., acting_version: _Optional[int] = ..., away: _Optional[bool] = ..., blocks: _Optional[int] = ..., shadow_decisions: _Optional[int] = ..., shadow_agreed: _Optional[int] = ..., since_stage: _Optional[int] = ..., refused_version: _Optional[int] = ..., refused_reason: _Optional[str] = ...) -> None: ...

class RolloutVerdict(_message.Message):
    __slots__ = ("unix_seconds", "stage", "outcome", "loss", "loss_lower", "loss_upper", "pairs", "held", "reasons", "loss_at_least", "loss_at_most", "rests_on")
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LOSS_LOWER_FIELD_NUMBER: _ClassVar[int]
    LOSS_UPPER_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    LOSS_AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LOSS_AT_MOST_FIELD_NUMBER: _ClassVar[int]
    RESTS_ON_FIELD_NUMBER: _ClassVar[int]
    unix_seconds: float
    stage: int
    outcome: str
    loss: float
    loss_lower: float
    loss_upper: float
    pairs: int
    held: _containers.RepeatedScalarFieldContainer[str]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    loss_at_least: float
    loss_at_most: float
    rests_on: str
    def __init__(self, unix_seconds: _Optional[float] = ..., stage: _Optional[int] = ..., outcome: _Optional[str] = ..., loss: _Optional[float] = ..., loss_lower: _Optional[float] = ..., loss_upper: _Optional[float] = ..., pairs: _Optional[int] = ..., held: _Optional[_Iterable[str]] = ..., reasons: _Optional[_Iterable[str]] = ..., loss_at_least: _Optional[float] = ..., loss_at_most: _Optional[float] = ..., rests_on: _Optional[str] = ...) -> None: ...

class RolloutEvent(_message.Message):
    __slots__ = ("number", "unix_seconds", "actor", "what", "subject", "came_of_it", "why")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    CAME_OF_IT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    number: int
    unix_seconds: float
    actor: str
    what: str
    subject: str
    came_of_it: _containers.RepeatedScalarFieldContainer[str]
    why: str
    def __init__(self, number: _Optional[int] = ..., unix_seconds: _Optional[float] = ..., actor: _Optional[str] = ..., what: _Optional[str] = ..., subject: _Optional[str] = ..., came_of_it: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ...) -> None: ...

class StartRolloutRequest(_message.Message):
    __slots__ = ("version", "plan_json", "dry_run", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    plan_json: str
    dry_run: bool
    reason: str
    def __init__(self, version: _Optional[int] = ..., plan_json: _Optional[str] = ..., dry_run: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class StartRolloutReply(_message.Message):
    __slots__ = ("rollout", "changes", "note")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    changes: _containers.RepeatedScalarFieldContainer[str]
    note: str
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., changes: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ...) -> None: ...

class GetRolloutRequest(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class GetRolloutReply(_message.Message):
    __slots__ = ("rollout",)
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ...) -> None: ...

class ListRolloutsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRolloutsReply(_message.Message):
    __slots__ = ("rollouts",)
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    def __init__(self, rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ...) -> None: ...

class ActOnRolloutRequest(_message.Message):
    __slots__ = ("action", "cluster", "dry_run", "reason", "seen")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    action: str
    cluster: str
    dry_run: bool
    reason: str
    seen: SeenRollout
    def __init__(self, action: _Optional[str] = ..., cluster: _Optional[str] = ..., dry_run: _Optional[bool] = ..., reason: _Optional[str] = ..., seen: _Optional[_Union[SeenRollout, _Mapping]] = ...) -> None: ...

class SeenRollout(_message.Message):
    __slots__ = ("number", "event_number")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    event_number: int
    def __init__(self, number: _Optional[int] = ..., event_number: _Optional[int] = ...) -> None: ...

class ActOnRolloutReply(_message.Message):
    __slots__ = ("rollout", "changes")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("since_unix_seconds",)
    SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    since_unix_seconds: float
    def __init__(self, since_unix_seconds: _Optional[float] = ...) -> None: ...

class ListAuditReply(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class GetFleetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetFleetReply(_message.Message):
    __slots__ = ("head_step", "updates_accepted", "updates_rejected", "staleness_p50", "clusters", "latest_version", "disk_bytes", "log_limit_bytes", "privacy", "disk_full", "upstream", "numbers_through", "away_seconds", "tries_people", "damaged_files")
    class DiskBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    HEAD_STEP_FIELD_NUMBER: _ClassVar[int]
    UPDATES_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_REJECTED_FIELD_NUMBER: _ClassVar[int]
    STALENESS_P50_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    LATEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    DISK_FULL_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_THROUGH_FIELD_NUMBER: _ClassVar[int]
    AWAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRIES_PEOPLE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FILES_FIELD_NUMBER: _ClassVar[int]
    head_step: int
    updates_accepted: int
    updates_rejected: int
    staleness_p50: float
    clusters: _containers.RepeatedCompositeFieldContainer[ClusterView]
    latest_version: int
    disk_bytes: _containers.ScalarMap[str, int]
    log_limit_bytes: int
    privacy: Privacy
    disk_full: str
    upstream: UpstreamView
    numbers_through: int
    away_seconds: float
    tries_people: bool
    damaged_files: _containers.RepeatedCompositeFieldContainer[DamagedFile]
    def __init__(self, head_step: _Optional[int] = ..., updates_accepted: _Optional[int] = ..., updates_rejected: _Optional[int] = ..., staleness_p50: _Optional[float] = ..., clusters: _Optional[_Iterable[_Union[ClusterView, _Mapping]]] = ..., latest_version: _Optional[int] = ..., disk_bytes: _Optional[_Mapping[str, int]] = ..., log_limit_bytes: _Optional[int] = ..., privacy: _Optional[_Union[Privacy, _Mapping]] = ..., disk_full: _Optional[str] = ..., upstream: _Optional[_Union[UpstreamView, _Mapping]] = ..., numbers_through: _Optional[int] = ..., away_seconds: _Optional[float] = ..., tries_people: _Optional[bool] = ..., damaged_files: _Optional[_Iterable[_Union[DamagedFile, _Mapping]]] = ...) -> None: ...

class DamagedFile(_message.Message):
    __slots__ = ("version", "is_head")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_HEAD_FIELD_NUMBER: _ClassVar[int]
    version: int
    is_head: bool
    def __init__(self, version: _Optional[int] = ..., is_head: _Optional[bool] = ...) -> None: ...

class UpstreamView(_message.Message):
    __slots__ = ("address", "name", "seconds_since_heard", "base_step", "waiting_updates", "open_push_updates", "version_above", "fault")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_SINCE_HEARD_FIELD_NUMBER: _ClassVar[int]
    BASE_STEP_FIELD_NUMBER: _ClassVar[int]
    WAITING_UPDATES_FIELD_NUMBER: _ClassVar[int]
    OPEN_PUSH_UPDATES_FIELD_NUMBER: _ClassVar[int]
    VERSION_ABOVE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    address: str
    name: str
    seconds_since_heard: float
    base_step: int
    waiting_updates: int
    open_push_updates: int
    version_above: int
    fault: str
    def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., seconds_since_heard: _Optional[float] = ..., base_step: _Optional[int] = ..., waiting_updates: _Optional[int] = ..., open_push_updates: _Optional[int] = ..., version_above: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class StalenessCounts(_message.Message):
    __slots__ = ("cluster", "updates")
    class UpdatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    updates: _containers.ScalarMap[int, int]
    def __init__(self, cluster: _Optional[str] = ..., updates: _Optional[_Mapping[int, int]] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReportReply(_message.Message):
    __slots__ = ("made_unix_seconds", "fleet", "versions", "enrolls", "identities", "staleness", "ended", "rollouts", "acts")
    MADE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ENROLLS_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    ACTS_FIELD_NUMBER: _ClassVar[int]
    made_unix_seconds: float
    fleet: GetFleetReply
    versions: _containers.RepeatedCompositeFieldContainer[VersionCard]
    enrolls: bool
    identities: _containers.RepeatedCompositeFieldContainer[ClusterIdentity]
    staleness: _containers.RepeatedCompositeFieldContainer[StalenessCounts]
    ended: bool
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    acts: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, made_unix_seconds: _Optional[float] = ..., fleet: _Optional[_Union[GetFleetReply, _Mapping]] = ..., versions: _Optional[_Iterable[_Union[VersionCard, _Mapping]]] = ..., enrolls: _Optional[bool] = ..., identities: _Optional[_Iterable[_Union[ClusterIdentity, _Mapping]]] = ..., staleness: _Optional[_Iterable[_Union[StalenessCounts, _Mapping]]] = ..., ended: _Optional[bool] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ..., acts: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class EnrollRequest(_message.Message):
    __slots__ = ("cluster", "token", "signing_request")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    token: str
    signing_request: bytes
    def __init__(self, cluster: _Optional[str] = ..., token: _Optional[str] = ..., signing_request: _Optional[bytes] = ...) -> None: ...

class RenewCertificateRequest(_message.Message):
    __slots__ = ("cluster", "signing_request")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    signing_request: bytes
    def __init__(self, cluster: _Optional[str] = ..., signing_request: _Optional[bytes] = ...) -> None: ...

class CertificateReply(_message.Message):
    __slots__ = ("certificate", "authority", "roots")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    roots: _containers.RepeatedCompositeFieldContainer[SignedDocument]
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ..., roots: _Optional[_Iterable[_Union[SignedDocument, _Mapping]]] = ...) -> None: ...

class EnrollClusterRequest(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    def __init__(self, cluster: _Optional[str] = ...) -> None: ...

class EnrollClusterReply(_message.Message):
    __slots__ = ("token", "expires_unix_seconds", "enroll_port", "authority", "voided_tokens")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENROLL_PORT_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    VOIDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    token: str
    expires_unix_seconds: float
    enroll_port: int
    authority: bytes
    voided_tokens: int
    def __init__(self, token: _Optional[str] = ..., expires_unix_seconds: _Optional[float] = ..., enroll_port: _Optional[int] = ..., authority: _Optional[bytes] = ..., voided_tokens: _Optional[int] = ...) -> None: ...

class ClusterIdentity(_message.Message):
    __slots__ = ("cluster", "state", "issued_unix_seconds", "expires_unix_seconds", "fingerprint", "revoked_unix_seconds")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    state: str
    issued_unix_seconds: float
    expires_unix_seconds: float
    fingerprint: str
    revoked_unix_seconds: float
    def __init__(self, cluster: _Optional[str] = ..., state: _Optional[str] = ..., issued_unix_seconds: _Optional[float] = ..., expires_unix_seconds: _Optional[float] = ..., fingerprint: _Optional[str] = ..., revoked_unix_seconds: _Optional[float] = ...) -> None: ...

class ListClustersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListClustersReply(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedCompositeFieldContainer[ClusterIdentity]
    def __init__(self, clusters: _Optional[_Iterable[_Union[ClusterIdentity, _Mapping]]] = ...) -> None: ...

class RevokeClusterRequest(_message.Message):
    __slots__ = ("cluster", "reason", "dry_run")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    reason: str
    dry_run: bool
    def __init__(self, cluster: _Optional[str] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RevokeClusterReply(_message.Message):
    __slots__ = ("certificates", "tokens")
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    certificates: int
    tokens: int
    def __init__(self, certificates: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class ForgetClusterRequest(_message.Message):
    __slots__ = ("cluster", "reason", "dry_run")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    reason: str
    dry_run: bool
    def __init__(self, cluster: _Optional[str] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ForgetClusterReply(_message.Message):
    __slots__ = ("registered", "updates_accepted")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    registered: bool
    updates_accepted: int
    def __init__(self, registered: _Optional[bool] = ..., updates_accepted: _Optional[int] = ...) -> None: ...

class EnrollOperatorRequest(_message.Message):
    __slots__ = ("name", "role", "signing_request")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    signing_request: bytes
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., signing_request: _Optional[bytes] = ...) -> None: ...

class EnrollOperatorReply(_message.Message):
    __slots__ = ("certificate", "authority", "expires_unix_seconds", "replaced")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    expires_unix_seconds: float
    replaced: int
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ..., expires_unix_seconds: _Optional[float] = ..., replaced: _Optional[int] = ...) -> None: ...

class OperatorIdentity(_message.Message):
    __slots__ = ("name", "role", "state", "issued_unix_seconds", "expires_unix_seconds", "fingerprint", "revoked_unix_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    state: str
    issued_unix_seconds: float
    expires_unix_seconds: float
    fingerprint: str
    revoked_unix_seconds: float
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., issued_unix_seconds: _Optional[float] = ..., expires_unix_seconds: _Optional[float] = ..., fingerprint: _Optional[str] = ..., revoked_unix_seconds: _Optional[float] = ...) -> None: ...

class ListOperatorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListOperatorsReply(_message.Message):
    __slots__ = ("operators",)
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedCompositeFieldContainer[OperatorIdentity]
    def __init__(self, operators: _Optional[_Iterable[_Union[OperatorIdentity, _Mapping]]] = ...) -> None: ...

class RevokeOperatorRequest(_message.Message):
    __slots__ = ("name", "reason", "dry_run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    dry_run: bool
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RevokeOperatorReply(_message.Message):
    __slots__ = ("certificates",)
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    certificates: int
    def __init__(self, certificates: _Optional[int] = ...) -> None: ...
