from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_WORKER: _ClassVar[Role]
    ROLE_SERVER: _ClassVar[Role]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_STARTING: _ClassVar[Phase]
    PHASE_RUNNING: _ClassVar[Phase]
    PHASE_RESIZING: _ClassVar[Phase]
    PHASE_SUSPENDING: _ClassVar[Phase]
    PHASE_SUSPENDED: _ClassVar[Phase]
    PHASE_RECOVERING: _ClassVar[Phase]
    PHASE_FINISHED: _ClassVar[Phase]
    PHASE_FAILED: _ClassVar[Phase]

class ResizeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESIZE_MODE_UNSPECIFIED: _ClassVar[ResizeMode]
    RESIZE_MODE_ROLLING: _ClassVar[ResizeMode]
    RESIZE_MODE_STOP_THE_WORLD: _ClassVar[ResizeMode]
    RESIZE_MODE_CHECKPOINT_RESTART: _ClassVar[ResizeMode]
ROLE_UNSPECIFIED: Role
ROLE_WORKER: Role
ROLE_SERVER: Role
PHASE_UNSPECIFIED: Phase
PHASE_STARTING: Phase
PHASE_RUNNING: Phase
PHASE_RESIZING: Phase
PHASE_SUSPENDING: Phase
PHASE_SUSPENDED: Phase
PHASE_RECOVERING: Phase
PHASE_FINISHED: Phase
PHASE_FAILED: Phase
RESIZE_MODE_UNSPECIFIED: ResizeMode
RESIZE_MODE_ROLLING: ResizeMode
RESIZE_MODE_STOP_THE_WORLD: ResizeMode
RESIZE_MODE_CHECKPOINT_RESTART: ResizeMode

class OpenRequest(_message.Message):
    __slots__ = ("job", "number")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    job: str
    number: bytes
    def __init__(self, job: _Optional[str] = ..., number: _Optional[bytes] = ...) -> None: ...

class OpenReply(_message.Message):
    __slots__ = ("session", "number", "proof")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    number: bytes
    proof: bytes
    def __init__(self, session: _Optional[bytes] = ..., number: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Size(_message.Message):
    __slots__ = ("servers", "workers")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    servers: int
    workers: int
    def __init__(self, servers: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("request_id", "target", "victims", "mode", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    target: Size
    victims: _containers.RepeatedScalarFieldContainer[str]
    mode: ResizeMode
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., target: _Optional[_Union[Size, _Mapping]] = ..., victims: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[ResizeMode, str]] = ..., epoch: _Optional[int] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("request_id", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("request_id", "target", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    target: Size
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., target: _Optional[_Union[Size, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class RequestReply(_message.Message):
    __slots__ = ("state", "detail")
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    state: str
    detail: str
    def __init__(self, state: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestState(_message.Message):
    __slots__ = ("request_id", "kind", "state", "detail", "target", "mode", "began_unix_seconds", "ended_unix_seconds", "moved_bytes", "minimum_bytes", "stall_seconds", "clock", "steps", "start_seconds", "registration_seconds", "assignment_seconds", "agreement_seconds", "migration_seconds")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kind: str
    state: str
    detail: str
    target: Size
    mode: ResizeMode
    began_unix_seconds: float
    ended_unix_seconds: float
    moved_bytes: int
    minimum_bytes: int
    stall_seconds: float
    clock: int
    steps: int
    start_seconds: float
    registration_seconds: float
    assignment_seconds: float
    agreement_seconds: float
    migration_seconds: float
    def __init__(self, request_id: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., detail: _Optional[str] = ..., target: _Optional[_Union[Size, _Mapping]] = ..., mode: _Optional[_Union[ResizeMode, str]] = ..., began_unix_seconds: _Optional[float] = ..., ended_unix_seconds: _Optional[float] = ..., moved_bytes: _Optional[int] = ..., minimum_bytes: _Optional[int] = ..., stall_seconds: _Optional[float] = ..., clock: _Optional[int] = ..., steps: _Optional[int] = ..., start_seconds: _Optional[float] = ..., registration_seconds: _Optional[float] = ..., assignment_seconds: _Optional[float] = ..., agreement_seconds: _Optional[float] = ..., migration_seconds: _Optional[float] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ("task", "role", "state", "step", "samples_per_second", "report_age_seconds", "bytes_sent", "bytes_received", "owned_bytes", "stall_seconds", "step_age_seconds")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    OWNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    task: str
    role: Role
    state: str
    step: int
    samples_per_second: float
    report_age_seconds: float
    bytes_sent: int
    bytes_received: int
    owned_bytes: int
    stall_seconds: float
    step_age_seconds: float
    def __init__(self, task: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., state: _Optional[str] = ..., step: _Optional[int] = ..., samples_per_second: _Optional[float] = ..., report_age_seconds: _Optional[float] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., owned_bytes: _Optional[int] = ..., stall_seconds: _Optional[float] = ..., step_age_seconds: _Optional[float] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job", "phase", "generation", "step", "total_steps", "epoch", "total_epochs", "durable_step", "size", "target", "tasks", "requests", "loss", "has_loss", "samples_per_second", "step_seconds", "stall_seconds", "failure", "samples", "wanted", "leaving", "staleness", "mode", "replicas", "blocks", "blocks_with_replica", "failures", "failures_in_a_row", "last_failure")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    HAS_LOSS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_WITH_REPLICA_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_IN_A_ROW_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    job: str
    phase: Phase
    generation: int
    step: int
    total_steps: int
    epoch: float
    total_epochs: float
    durable_step: int
    size: Size
    target: Size
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    requests: _containers.RepeatedCompositeFieldContainer[RequestState]
    loss: float
    has_loss: bool
    samples_per_second: float
    step_seconds: float
    stall_seconds: float
    failure: str
    samples: int
    wanted: _containers.RepeatedScalarFieldContainer[str]
    leaving: _containers.RepeatedScalarFieldContainer[str]
    staleness: int
    mode: str
    replicas: int
    blocks: int
    blocks_with_replica: int
    failures: int
    failures_in_a_row: int
    last_failure: str
    def __init__(self, job: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., total_steps: _Optional[int] = ..., epoch: _Optional[float] = ..., total_epochs: _Optional[float] = ..., durable_step: _Optional[int] = ..., size: _Optional[_Union[Size, _Mapping]] = ..., target: _Optional[_Union[Size, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., requests: _Optional[_Iterable[_Union[RequestState, _Mapping]]] = ..., loss: _Optional[float] = ..., has_loss: _Optional[bool] = ..., samples_per_second: _Optional[float] = ..., step_seconds: _Optional[float] = ..., stall_seconds: _Optional[float] = ..., failure: _Optional[str] = ..., samples: _Optional[int] = ..., wanted: _Optional[_Iterable[str]] = ..., leaving: _Optional[_Iterable[str]] = ..., staleness: _Optional[int] = ..., mode: _Optional[str] = ..., replicas: _Optional[int] = ..., blocks: _Optional[int] = ..., blocks_with_replica: _Optional[int] = ..., failures: _Optional[int] = ..., failures_in_a_row: _Optional[int] = ..., last_failure: _Optional[str] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("task", "role", "incarnation", "address_json", "layout_json", "training_json")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_JSON_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_JSON_FIELD_NUMBER: _ClassVar[int]
    TRAINING_JSON_FIELD_NUMBER: _ClassVar[int]
    task: str
    role: Role
    incarnation: int
    address_json: str
    layout_json: bytes
    training_json: bytes
    def __init__(self, task: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., incarnation: _Optional[int] = ..., address_json: _Optional[str] = ..., layout_json: _Optional[bytes] = ..., training_json: _Optional[bytes] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("refusal", "layout_json", "training_json", "report_every_seconds", "not_needed")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_JSON_FIELD_NUMBER: _ClassVar[int]
    TRAINING_JSON_FIELD_NUMBER: _ClassVar[int]
    REPORT_EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOT_NEEDED_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    layout_json: bytes
    training_json: bytes
    report_every_seconds: float
    not_needed: bool
    def __init__(self, refusal: _Optional[str] = ..., layout_json: _Optional[bytes] = ..., training_json: _Optional[bytes] = ..., report_every_seconds: _Optional[float] = ..., not_needed: _Optional[bool] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("task", "incarnation")
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    task: str
    incarnation: int
    def __init__(self, task: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("task", "role", "incarnation", "address_json")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_JSON_FIELD_NUMBER: _ClassVar[int]
    task: str
    role: Role
    incarnation: int
    address_json: str
    def __init__(self, task: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., incarnation: _Optional[int] = ..., address_json: _Optional[str] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("block", "server")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    block: int
    server: int
    def __init__(self, block: _Optional[int] = ..., server: _Optional[int] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("moves", "has_workers", "workers", "replicas")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    HAS_WORKERS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    has_workers: bool
    workers: _containers.RepeatedScalarFieldContainer[str]
    replicas: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., has_workers: _Optional[bool] = ..., workers: _Optional[_Iterable[str]] = ..., replicas: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("number", "clock", "stages", "servers", "checkpoint", "halt", "barrier")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    HALT_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    number: int
    clock: int
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    servers: _containers.RepeatedScalarFieldContainer[str]
    checkpoint: bool
    halt: bool
    barrier: bool
    def __init__(self, number: _Optional[int] = ..., clock: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., servers: _Optional[_Iterable[str]] = ..., checkpoint: _Optional[bool] = ..., halt: _Optional[bool] = ..., barrier: _Optional[bool] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("workers", "servers", "owners", "replicas")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedScalarFieldContainer[str]
    servers: _containers.RepeatedScalarFieldContainer[str]
    owners: _containers.RepeatedScalarFieldContainer[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, workers: _Optional[_Iterable[str]] = ..., servers: _Optional[_Iterable[str]] = ..., owners: _Optional[_Iterable[int]] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class Substitute(_message.Message):
    __slots__ = ("worker", "by")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    worker: str
    by: str
    def __init__(self, worker: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("number", "generation", "phase", "start_step", "start_checkpoint", "start_plan", "changes", "proposal", "members", "committed", "substitutes", "initialiser", "wanted", "leaving", "failure", "lost_servers", "notice", "ends_at")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    START_STEP_FIELD_NUMBER: _ClassVar[int]
    START_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    START_PLAN_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    SUBSTITUTES_FIELD_NUMBER: _ClassVar[int]
    INITIALISER_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOST_SERVERS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    number: int
    generation: int
    phase: Phase
    start_step: int
    start_checkpoint: str
    start_plan: Plan
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    proposal: Change
    members: _containers.RepeatedCompositeFieldContainer[Member]
    committed: int
    substitutes: _containers.RepeatedCompositeFieldContainer[Substitute]
    initialiser: str
    wanted: _containers.RepeatedScalarFieldContainer[str]
    leaving: _containers.RepeatedScalarFieldContainer[str]
    failure: str
    lost_servers: _containers.RepeatedScalarFieldContainer[str]
    notice: str
    ends_at: int
    def __init__(self, number: _Optional[int] = ..., generation: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., start_step: _Optional[int] = ..., start_checkpoint: _Optional[str] = ..., start_plan: _Optional[_Union[Plan, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., proposal: _Optional[_Union[Change, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., committed: _Optional[int] = ..., substitutes: _Optional[_Iterable[_Union[Substitute, _Mapping]]] = ..., initialiser: _Optional[str] = ..., wanted: _Optional[_Iterable[str]] = ..., leaving: _Optional[_Iterable[str]] = ..., failure: _Optional[str] = ..., lost_servers: _Optional[_Iterable[str]] = ..., notice: _Optional[str] = ..., ends_at: _Optional[int] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("name", "step", "size_bytes", "sha256", "change")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    step: int
    size_bytes: int
    sha256: str
    change: int
    def __init__(self, name: _Optional[str] = ..., step: _Optional[int] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., change: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("task", "incarnation", "view", "generation", "step", "accepted", "refused", "ready", "arrived", "shards", "initialised", "finished", "failure", "loss", "has_loss", "samples", "samples_per_second", "step_seconds", "stall_seconds", "bytes_sent", "bytes_received", "owned_bytes", "moved_bytes", "suspects", "staleness", "left", "draining", "signalled", "bad_input", "damage")
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    INITIALISED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    HAS_LOSS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    OWNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SIGNALLED_FIELD_NUMBER: _ClassVar[int]
    BAD_INPUT_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    task: str
    incarnation: int
    view: int
    generation: int
    step: int
    accepted: int
    refused: int
    ready: bool
    arrived: int
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    initialised: bool
    finished: bool
    failure: str
    loss: float
    has_loss: bool
    samples: int
    samples_per_second: float
    step_seconds: float
    stall_seconds: float
    bytes_sent: int
    bytes_received: int
    owned_bytes: int
    moved_bytes: int
    suspects: _containers.RepeatedScalarFieldContainer[str]
    staleness: int
    left: bool
    draining: bool
    signalled: bool
    bad_input: bool
    damage: str
    def __init__(self, task: _Optional[str] = ..., incarnation: _Optional[int] = ..., view: _Optional[int] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., accepted: _Optional[int] = ..., refused: _Optional[int] = ..., ready: _Optional[bool] = ..., arrived: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., initialised: _Optional[bool] = ..., finished: _Optional[bool] = ..., failure: _Optional[str] = ..., loss: _Optional[float] = ..., has_loss: _Optional[bool] = ..., samples: _Optional[int] = ..., samples_per_second: _Optional[float] = ..., step_seconds: _Optional[float] = ..., stall_seconds: _Optional[float] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., owned_bytes: _Optional[int] = ..., moved_bytes: _Optional[int] = ..., suspects: _Optional[_Iterable[str]] = ..., staleness: _Optional[int] = ..., left: _Optional[bool] = ..., draining: _Optional[bool] = ..., signalled: _Optional[bool] = ..., bad_input: _Optional[bool] = ..., damage: _Optional[str] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("view", "expelled")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    EXPELLED_FIELD_NUMBER: _ClassVar[int]
    view: int
    expelled: bool
    def __init__(self, view: _Optional[int] = ..., expelled: _Optional[bool] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("task", "incarnation", "generation", "done", "batches")
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    task: str
    incarnation: int
    generation: int
    done: _containers.RepeatedScalarFieldContainer[int]
    batches: int
    def __init__(self, task: _Optional[str] = ..., incarnation: _Optional[int] = ..., generation: _Optional[int] = ..., done: _Optional[_Iterable[int]] = ..., batches: _Optional[int] = ...) -> None: ...

class LeasedRange(_message.Message):
    __slots__ = ("id", "epoch", "start", "stop")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    id: int
    epoch: int
    start: int
    stop: int
    def __init__(self, id: _Optional[int] = ..., epoch: _Optional[int] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("leases", "finished")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeasedRange]
    finished: bool
    def __init__(self, leases: _Optional[_Iterable[_Union[LeasedRange, _Mapping]]] = ..., finished: _Optional[bool] = ...) -> None: ...

class TaskEndedRequest(_message.Message):
    __slots__ = ("task", "exit_code", "last_line", "epoch")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_LINE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    task: str
    exit_code: int
    last_line: str
    epoch: int
    def __init__(self, task: _Optional[str] = ..., exit_code: _Optional[int] = ..., last_line: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class TaskEndedReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
