"""Work and facts of a job, from its record and what its coordinator counted, as its user sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from elastic_runtime.protocol.plan import JobPhase

GUESSED_SAMPLES_PER_EPOCH = 10_000.0
"""Until the first sample of a job, and of all jobs of its type, was counted."""
_BEGINNING = (None, JobPhase.STARTING, JobPhase.RECOVERING)
_FALSE_FROM = 1.01
"""An epoch has no whole number of batches: so much more than was said is no lie."""
_MISSTATED_FROM = 2.0
"""Times as much, or as little, as was stated: less is as well as most can say it beforehand."""
_EPOCH_SAMPLES = (1e-6, 1e15)
"""That an epoch may have, or steps; the progress of a script is its own word."""


def samples_per_epoch(record: LocalJobRecord, measured: LocalMeasurement) -> float:
    """Measured; 0 until the first sample, and where what was measured is no number that anything could follow from."""
    least, most = _EPOCH_SAMPLES
    return next((size for size in (measured.samples_per_epoch, record.samples_per_epoch) if least <= size <= most), 0.0)


def steps_per_epoch(record: LocalJobRecord, measured: LocalMeasurement) -> float:
    """Global steps; as `samples_per_epoch`."""
    least, most = _EPOCH_SAMPLES
    return next((size for size in (measured.steps_per_epoch, record.steps_per_epoch) if least <= size <= most), 0.0)


@dataclass(frozen=True, slots=True)
class UsualEpoch:
    """What an epoch of a type has in samples and in global steps; 0: it is not known."""

    samples: float = 0.0
    steps: float = 0.0


def total_epochs(record: LocalJobRecord, measured: LocalMeasurement, usual: UsualEpoch) -> float | None:
    """Work of the whole job: as its script said once it had started, else as its file says (`usual` is of its type).

    None: nobody did, or in steps of which nobody knows how many make an epoch, or it has done more than that: what was
    wrong once is not relied on.
    """
    stated = measured.total_epochs or record.total_epochs or _stated_epochs(record, measured, usual)
    per_epoch = samples_per_epoch(record, measured)
    if stated is None or not per_epoch:
        return stated
    done = max(measured.samples, record.samples) / per_epoch
    return None if done > _FALSE_FROM * stated else stated


def _stated_epochs(record: LocalJobRecord, measured: LocalMeasurement, usual: UsualEpoch) -> float | None:
    work = record.file.work
    if work is None or work.steps is None:
        return None if work is None else work.epochs
    steps = steps_per_epoch(record, measured) or usual.steps
    return work.steps / steps if steps > 0.0 else None


def misstated(record: LocalJobRecord, measured: LocalMeasurement, *, done: bool) -> str:
    """Line on how far a job is from its stated work; empty if it is not, or nobody can tell.

    Until it is `done`, what it has still to do counts as far as its script says it.
    """
    work, per_epoch = record.file.work, samples_per_epoch(record, measured)
    if work is None:
        return ""
    unit, stated, trained, reported = "step", float(work.steps or 0), measured.steps, 0.0
    if work.epochs is not None:
        trained = max(measured.samples, record.samples) / per_epoch if per_epoch else 0.0
        unit, stated, reported = "epoch", work.epochs, measured.total_epochs or record.total_epochs
    if done:
        if not trained or 1 / _MISSTATED_FROM < trained / stated < _MISSTATED_FROM:
            return ""
        return f"said {_amount(stated, unit)}, trained {_amount(trained)}: say that next time"
    if trained >= _MISSTATED_FROM * stated:
        return f"said {_amount(stated, unit)}, has trained {_amount(trained)} already"
    if reported and not 1 / _MISSTATED_FROM < reported / stated < _MISSTATED_FROM:
        return f"said {_amount(stated, unit)}, its script says {_amount(reported)}"
    return ""


def _amount(number: float, unit: str = "") -> str:
    shown = f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
    return f"{shown} {unit}{'s' * (shown != '1')}" if unit else shown


def user_facts(
    record: LocalJobRecord,
    measured: LocalMeasurement,
    now_unix_seconds: float,
    waits: str = "",
    trained_seconds: float = 0.0,
) -> dict[str, Any]:
    """What `cluster-agent job` shows; plain JSON values, times in seconds.

    Its age is the time that it waited, started and stood still, and the time that it ran. What it has, its samples and
    its progress are of the moment `measuredUnixSeconds`, the rest is of the look; None: they do not change now.
    """
    running = record.state is JobState.RUNNING
    file = record.file
    roles = {"workers": file.worker} | ({"ps": file.ps} if file.kind.uses_ps else {})
    age_seconds = max(0.0, (record.ended_unix_seconds or now_unix_seconds) - record.submitted_unix_seconds)
    # Records of agents that counted between decisions alone have no other time.
    run_seconds = min(age_seconds, max(trained_seconds, record.run_seconds))
    total, per_epoch = total_epochs(record, measured, UsualEpoch()), samples_per_epoch(record, measured)
    samples = max(measured.samples, record.samples)
    progress = None if total is None or not per_epoch else min(1.0, samples / per_epoch / total)
    phase = (
        measured.phase.value if running and measured.phase not in (None, JobPhase.RUNNING, JobPhase.STARTING) else ""
    )
    return {
        "name": record.name,
        "modelType": file.model_type,
        "kind": "fixed" if file.fixed else file.kind.value,
        "state": _shown_state(record, measured),
        "stateSinceUnixSeconds": _state_since(record),
        "measuredUnixSeconds": (measured.seen_unix_seconds or None) if running and measured.running.workers else None,
        "workers": measured.running.workers if running else 0,
        "ps": measured.running.ps if running else 0,
        "progress": 1.0 if record.state is JobState.DONE else progress,
        "may": {
            role: {"min": tasks.min, "max": tasks.max, "cpu": tasks.cpu / 1000, "gpu": tasks.gpu}
            for role, tasks in roles.items()
        },
        "script": str(file.script),
        "interpreter": None if file.interpreter is None else list(file.interpreter),
        "workdir": str(file.workdir),
        "timeLimit": file.time_limit,
        "timeLeftSeconds": _time_left(record, trained_seconds, now_unix_seconds),
        "dependsOn": list(file.depends_on),
        "depends": record.depends,
        "notify": file.notify,
        "requeue": file.requeue,
        "restarts": measured.restarts,
        "args": list(file.args),
        "submittedUnixSeconds": record.submitted_unix_seconds,
        "waitedSeconds": age_seconds - run_seconds,
        "runSeconds": run_seconds,
        "ageSeconds": age_seconds,
        "samples": samples,
        "stallSeconds": measured.stall_seconds,
        "failures": measured.failures,
        "lastFailure": measured.last_failure,
        "ended": record.state.ended,
        "held": record.held,
        "cancelling": record.cancelling,
        "note": _note(record, measured, phase or waits),
    }


def _note(record: LocalJobRecord, measured: LocalMeasurement, waits: str) -> str:
    """What there is to say of it, in a line."""
    line = (
        record.failure
        or ("is being cancelled" if record.cancelling and not record.state.ended else waits)
        or (f"waits for {', '.join(record.file.dependencies)}" if record.depends else "")
        or ("" if record.state.ended else measured.damage)
        or (f"keeps to its least size: {record.too_large}" if record.too_large else "")
        or ("" if record.state.ended else _failed_before(measured))
        or record.misstated
        or ("" if record.state.ended else misstated(record, measured, done=False))
    )
    failed = f"notification failed: {record.notice_failure}" if record.notice_failure else ""
    return "; ".join(part for part in (line, failed) if part)


def _time_left(record: LocalJobRecord, trained_seconds: float, now_unix_seconds: float) -> float | None:
    """Seconds until its time limit; None where there is none, or it has ended."""
    limit, ends_by = record.file.limit_seconds, record.file.ends_by
    if record.state.ended or (limit is None and ends_by is None):
        return None
    return max(0.0, limit - trained_seconds if limit is not None else (ends_by or 0.0) - now_unix_seconds)


def _failed_before(measured: LocalMeasurement) -> str:
    """That it was started again, which nobody may notice of a job that gets on."""
    if not measured.failures:
        return ""
    times = "once" if measured.failures == 1 else f"{measured.failures} times"
    return f"its script failed {times} and was started again; last: {measured.last_failure}"


def _state_since(record: LocalJobRecord) -> float | None:
    """Unix seconds since when it waits, trains or is over; None where that is not known, while it starts say."""
    since = {
        JobState.QUEUED: 0.0 if record.held else record.submitted_unix_seconds,
        JobState.RUNNING: record.training_since_unix_seconds,
        JobState.SUSPENDED: record.suspended_unix_seconds,
    }
    return since.get(record.state, record.ended_unix_seconds) or None


def _shown_state(record: LocalJobRecord, measured: LocalMeasurement) -> str:
    """A user's words: what runs and trains, what is about to, and what waits for its user alone."""
    if record.state is JobState.RUNNING and not measured.running.workers and measured.phase in _BEGINNING:
        return "starting"
    if record.held and not record.state.ended and record.state is not JobState.RUNNING:
        return "held"
    return record.state.value
