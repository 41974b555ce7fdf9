"""Status of a TrainingJob: what people and other programs read of it; pure.

Conditions have the names that Jobs have (Complete, Failed, Suspended), so that `kubectl wait` works as it does there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from cluster_agent.backends.kubernetes.training.ranks import GangStep, notes_of
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep, size_words
from cluster_agent.kubernetes.api_server import whole_time
from cluster_agent.kubernetes.resources import Json, as_dict, condition
from cluster_agent.kubernetes.training.training_job import JobUpdateMode, TrainingJob
from elastic_runtime.protocol.plan import JobPhase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

PROGRESS_SECONDS: Final = 10.0
"""Between two writes that say no more than how far a job is."""
_LONGEST_LINE = 1000
_TRAINS = {False: (JobStanding.RUNNING, JobStanding.RESIZING), True: (JobStanding.RUNNING,)}
"""By all-reduce a job does not train while it is resized."""
_LAST_WORDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) epochs, (\d{1,15}) samples")


@dataclass(frozen=True, slots=True)
class Granted:
    """What was decided that a job has: by which decision, and by which version of a policy."""

    size: Allocation
    decision: str
    version: str
    reason: str
    lease_epoch: int
    unix_seconds: float

    def content(self) -> Json:
        """As it stands in the status."""
        return {
            "workers": self.size.workers,
            "ps": self.size.ps,
            "policyVersion": self.version,
            "decisionId": self.decision,
            "reason": self.reason,
            "leaseEpoch": self.lease_epoch,
            "time": whole_time(self.unix_seconds),
        }


def status_of(
    job: TrainingJob,
    step: JobStep,
    job_report: CoordinatorReport | None,
    granted: Granted | None,
    unix_seconds: float,
    advised: Allocation | None = None,
) -> Json:
    """The whole status that a job is to have now, as far as it is ours to say."""
    now = whole_time(unix_seconds)
    status: Json = {
        "observedGeneration": job.generation,
        "phase": step.standing.value,
        "message": plain_line(step.line, _LONGEST_LINE),
        "conditions": _conditions(job, step, job_report, now),
    }
    if granted is not None:
        status["allocation"] = granted.content()
    if advised is not None:
        line = "wait" if advised == SUSPENDED else "the size that it would have, were updateMode Auto"
        status["recommendation"] = {"workers": advised.workers, "ps": advised.ps, "message": line, "time": now}
    elif job.status.get("recommendation") and job.mode is not JobUpdateMode.OFF:
        status["recommendation"] = None  # its size is set
    runs = (
        job_report is not None
        and not job_report.falsehood
        and step.standing not in (JobStanding.QUEUED, JobStanding.SUSPENDED)
        and not step.outcome
    )
    status["workers"] = job_report.status.size.workers if runs and job_report is not None else 0
    if isinstance(step, GangStep):  # its pods say it, also where its script does not
        status["workers"] = step.world if step.standing is JobStanding.RUNNING else 0
    status["ps"] = job_report.status.size.servers if runs and job_report is not None else 0
    if job_report is not None and job_report.status.phase is not JobPhase.STARTING and not job_report.falsehood:
        status["progress"] = _progress(job_report)
    elif step.outcome == "Complete" and (match := _LAST_WORDS.fullmatch(step.line)):
        # It came to its end while nobody asked: how far it was stands in what its coordinator said last.
        known = as_dict(job.status.get("progress"))
        total = {"totalEpochs": f"{float(match[1]):g}"}  # all that there were, unless more is known
        status["progress"] = {**total, **known, "epoch": f"{float(match[1]):.2f}", "samples": int(match[2])}
    if step.is_gang and not job.has_started:
        status["startTime"], status["templateDigest"] = now, job.digest
    if step.outcome and not job.status.get("completionTime"):
        status["completionTime"] = now
    return status


def event_line(step: JobStep, job_report: CoordinatorReport | None) -> str:
    """What an Event says of where a job is now: sizes, where there is nothing else to say."""
    if (
        step.line
        or job_report is None
        or job_report.falsehood
        or step.standing not in (JobStanding.RUNNING, JobStanding.RESIZING)
    ):
        return step.line or step.standing.value.lower()
    size, target = job_report.status.size, job_report.status.target
    if step.standing is JobStanding.RUNNING or size == target:
        return f"trains with {size_words(size)}"
    return f"from {size_words(size)} to {size_words(target)}"


def says_more(job: TrainingJob, status: Json) -> bool:
    """Whether there is more to say than how far the job is, and since when."""
    return any(
        _meaning(job.status.get(name)) != _meaning(value) for name, value in status.items() if name != "progress"
    )


def _meaning(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _meaning(part) for name, part in value.items() if name not in ("time", "observedGeneration")}
    if isinstance(value, list):  # of conditions, each of a type: others may put theirs anywhere
        return sorted((_meaning(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def _progress(job_report: CoordinatorReport) -> Json:
    status = job_report.status
    return {
        "epoch": f"{status.epoch:.2f}",
        "totalEpochs": f"{status.total_epochs:g}",
        "step": status.step,
        "samples": status.samples,
        "samplesPerSecond": f"{status.samples_per_second:.4g}",
        **({"loss": f"{status.loss:.4g}"} if status.loss is not None else {}),
    }


def _failed_before(job: TrainingJob, job_report: CoordinatorReport | None) -> str:
    """That it was started again, which nobody may notice of a job that gets on."""
    if job.is_all_reduce:
        notes = notes_of(job)
        count, line = notes.total, notes.reason
    else:
        count, line = (0, "") if job_report is None else (job_report.status.failures, job_report.status.last_failure)
    if not count:
        return ""
    return f"its script failed {'once' if count == 1 else f'{count} times'} and was started again; last: {line}"


def _conditions(job: TrainingJob, step: JobStep, job_report: CoordinatorReport | None, now: str) -> list[Json]:
    standing = step.standing
    stated = [
        ("Accepted", *_accepted(job, step)),
        (
            "Running",
            standing in _TRAINS[job.is_all_reduce],
            standing.value,
            step.line or _failed_before(job, job_report),
        ),
        (
            "Suspended",
            standing is JobStanding.SUSPENDED,
            standing.value,
            "by spec.suspend" if job.suspend else "it is not",
        ),
        ("Durable", *_durable(job)),
    ]
    if job.unlisted or job.condition("Permitted"):
        line = job.unlisted or "its templates ask for nothing that its namespace may not have"
        stated.append(("Permitted", not job.unlisted, "NotListed" if job.unlisted else "Listed", line))
    if step.admission is not None:
        stated.append(step.admission)
    doubt = "" if job_report is None else job_report.doubt
    if job_report is not None and (doubt or job.condition("Believed")):
        stated.append(("Believed", not doubt, "NotBelieved" if doubt else "Believed", doubt or "what it counts can be"))
    if job.is_all_reduce:
        stated.append(("Resizable", *_resizable(job)))
    for name in ("Complete", "Failed"):
        if step.outcome == name:
            stated.append((name, True, "Finished" if name == "Complete" else "TrainingFailed", step.line))
    ours = {name for name, *_ in stated}
    return [
        *(each for each in job.status.get("conditions") or () if each.get("type") not in ours),
        *(
            condition(job.status, (name, is_true, reason, plain_line(line, _LONGEST_LINE)), now, job.generation)
            for name, is_true, reason, line in stated
        ),
    ]


def _accepted(job: TrainingJob, step: JobStep) -> tuple[bool, str, str]:
    if job.problem or step.standing is JobStanding.INVALID:
        return False, "NotUsable", job.problem or step.line
    if step.forbidden:
        return False, "PodRefused", step.forbidden
    return True, "Accepted", "its spec can be used"


def _durable(job: TrainingJob) -> tuple[bool, str, str]:
    if not job.keeps_checkpoints:
        return False, "NoCheckpointVolume", "without spec.checkpoints it begins anew when it loses what it has trained"
    if job.is_all_reduce:
        return True, "VolumesNamed", "its checkpoints outlive its pods"
    if not job.journal_claim:
        line = "without spec.coordinator.journal it goes back to a checkpoint when its coordinator's pod is lost"
        return False, "NoJournalVolume", line
    if job.checkpoints_store:
        return True, "StoreNamed", f"checkpoints are in {job.checkpoints_store}, the journal is on a volume"
    return True, "VolumesNamed", "checkpoints and journal are on volumes"


def _resizable(job: TrainingJob) -> tuple[bool, str, str]:
    if not job.is_resizable:
        line = "without spec.checkpoints its size stays as it began: another size goes on from a checkpoint"
        return False, "NoCheckpointVolume", line
    return True, "ByCheckpoint", "for another size its ranks stop after a checkpoint, and others go on from there"
