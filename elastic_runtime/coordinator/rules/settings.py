"""Settings of a coordinator: meaning, unit, and the default's reason."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from elastic_runtime.control.checks import JOB_NAME, MOST_TASKS


class CoordinatorSettings(BaseModel):
    """How one job is coordinated; all times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str = Field(pattern=f"^{JOB_NAME}$", description="the job's name")
    servers: int = Field(ge=1, le=MOST_TASKS, description="parameter servers that the job starts with")
    workers: int = Field(ge=1, le=MOST_TASKS, description="workers that the job starts with")
    replicas: int = Field(
        1,
        ge=1,
        le=2,
        description="holders of each block; 2: the loss of one parameter server undoes no step, and gradients are sent "
        "twice; needs two parameter servers and synchronous training",
    )
    minimum_servers: int = Field(1, ge=1, description="resizes below are refused; 1: a model needs somewhere to be")
    minimum_workers: int = Field(1, ge=1, description="resizes below are refused; 1: somebody has to compute")
    report_every_seconds: float = Field(
        1.0, gt=0, description="members report at least so often; a report costs some 0.2 ms of processor time"
    )
    lost_seconds: float = Field(
        10.0,
        gt=0,
        description="a member that is silent so long, and whose stream is gone, is taken for dead: ten reports, as "
        "a busy machine is not a dead one",
    )
    silent_seconds: float = Field(
        30.0, gt=0, description="likewise with its stream open: a process that is stopped, or hangs"
    )
    first_report_seconds: float = Field(
        300.0,
        gt=0,
        description="likewise between its registration and its first word: a busy machine is slow to start a process",
    )
    start_seconds: float = Field(
        300.0, gt=0, description="the job's first tasks are there by then, or it fails; images have to be pulled"
    )
    new_task_seconds: float = Field(
        300.0, gt=0, description="tasks that a resize adds are there and warm by then, or it is given up"
    )
    replacement_seconds: float = Field(
        20.0,
        gt=0,
        description="how long a job that lost a PS waits for its replacement before it spreads the blocks over the "
        "others; about what a process needs to start",
    )
    ready_seconds: float = Field(
        300.0, gt=0, description="servers of a new generation have read their blocks by then, or are taken for dead"
    )
    vote_seconds: float = Field(
        15.0, gt=0, description="workers answer a proposal by then, or are taken for dead; it needs one control thread"
    )
    control_delay_seconds: float = Field(
        0.1,
        gt=0,
        description="how far ahead of the newest step a clock is set, in time: a proposal and its answers need two "
        "round trips; longer delays a resize, shorter makes workers refuse it or wait",
    )
    arrival_seconds: float = Field(
        120.0, gt=0, description="moved blocks have arrived so long after their last clock, or the receiver is lost"
    )
    leave_seconds: float = Field(60.0, gt=0, description="tasks told to leave have ended by then, or are forgotten")
    checkpoint_seconds: float = Field(
        60.0, gt=0, description="time between checkpoints, which is what the loss of a PS costs"
    )
    checkpoint_write_seconds: float = Field(
        300.0, gt=0, description="a checkpoint is written by then, or given up; the one before stands"
    )
    checkpoints_kept: int = Field(3, ge=1, description="newest complete checkpoints that are kept")
    stage_fraction: float = Field(
        0.05,
        gt=0,
        le=1,
        description="share of the model's bytes that moves at one step of a rolling resize, at least one block; more "
        "ends sooner and makes the steps longer",
    )
    stage_bytes: int = Field(
        1_000_000,
        ge=1,
        description="so many bytes of the model may move at one step however small the model is: they take about a "
        "millisecond, and a further step takes as long as steps do",
    )
    suspect_seconds: float = Field(
        30.0, gt=0, description="a member whose peers all say so long that it does not answer is taken for dead"
    )
    restarts: int = Field(
        3,
        ge=0,
        description="failures of the user's script, without a step becoming durable in between, after which the job "
        "fails",
    )
    restart_seconds: float = Field(
        1.0,
        gt=0,
        description="pause before a worker is started again after a second failure; each further one within ten "
        "minutes doubles it, up to a minute: a script that gets on is started again for ever",
    )
    losses: int = Field(
        20, ge=0, description="tasks lost without a step becoming durable after which the job fails: it gets nowhere"
    )
    requests_kept: int = Field(200, ge=10, description="ended requests whose ids are remembered")
