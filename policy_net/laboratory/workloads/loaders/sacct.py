"""Slurm's accounting: what `sacct -aXD -P` prints; which columns are asked for, and what becomes of each.

A job that was requeued, preempted or resized, or lost its node, has a row for every run, all with its id: one request,
with the sum of its runs. An id that Slurm gave out again is another job: its rows overlap in time, or have another
submission though nothing had made the job before give way.
Source: sacct(1) and Slurm's description of trackable resources; scontrol(1), `show hostnames`, for node lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from policy_net.errors import BadInput, MalformedRow, OtherColumns
from policy_net.laboratory.csv_rows import MOST_GPUS, Row, read_rows, shown
from policy_net.laboratory.workloads.loaders.intake import INCOMPLETE, NEVER_STARTED, UNFINISHED, Intake, LeftOut
from policy_net.laboratory.workloads.loaders.record import (
    Held,
    NodeShare,
    Piece,
    RecordedJob,
    Recording,
    as_one_request,
    even_shares,
)
from policy_net.laboratory.workloads.loaders.times import (
    ZONE_NOTE,
    elapsed,
    moment,
    moment_if_any,
    span,
    stated_moment,
    unstated,
)

COLUMNS = ("JobID", "Submit", "State")
_IDS = frozenset({"JobID", "JobIDRaw"})
_OTHERS = frozenset(
    {"Account", "AllocCPUS", "AllocTRES", "Elapsed", "ElapsedRaw", "End", "ExitCode", "JobName", "NodeList",
     "Partition", "ReqTRES", "Start", "Submit", "User"}
)  # fmt: skip
"""Common columns beside `State`, which no other format's header has together with an id so spelled."""
_MARKS = {",": "','", ";": "';'", "\t": "tabs"}
"""What divides columns that `|` does not, as a comma does under `--delimiter=,` or from a spreadsheet."""
LENGTHS = ("ElapsedRaw", "Elapsed", "End")
RESOURCES = ("AllocTRES", "ReqTRES")

ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
     "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"}
)  # fmt: skip
ACTIVE = frozenset(
    {"COMPLETING", "CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
     "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)  # fmt: skip

GIVES_WAY = frozenset(
    {"BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED",
     "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"}
)  # fmt: skip
"""After a run that ended so, the same job may run again."""
GOES_ON = GIVES_WAY & ACTIVE
"""After a run that ended so, it will."""
CLOCK_SECONDS = 1.0
"""What begins so much before something else ended does not overlap it: times are whole seconds."""

HOW_TO_GET = (
    "print it with sacct -aXD -P --format=JobID,Submit,Start,End,ElapsedRaw,State,AllocTRES,ReqTRES,NodeList,User,"
    "Account,Partition"
)
HINT = (
    "Slurm records GPUs only where AccountingStorageTRES in slurm.conf names gres/gpu; ask sacct for AllocTRES, ReqTRES"
)
MOST_NODES = 100_000
"""Of one job; a list of more is no list of nodes."""
_CPU = re.compile(r"cpu=(\d{1,7})")
_NODES = re.compile(r"(?P<prefix>[^\[\],]+)(?:\[(?P<numbers>[\d,-]+)\](?P<suffix>[^\[\],]*))?(?:,|$)")
_GPU = re.compile(r"gres/gpu(?::(?P<type>[^=]+))?=(?P<count>.*)")


def looks_like_sacct(header: str) -> bool:
    """Whether a first line has names of columns that `sacct` prints, whatever divides them."""
    words = set(re.split(r"[|,;\s\"]+", header))
    return bool(words & _IDS) and ("State" in words or len(words & _OTHERS) > 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """One row.

    Attributes:
        start_seconds, end_seconds: None where the row does not say them.
        seconds: how long it ran; None of one that never started.
        unfinished: whether the row was written before the run had ended.
    """

    line: int
    state: str
    submit_seconds: float
    start_seconds: float | None = None
    end_seconds: float | None = None
    seconds: float | None = None
    gpus: int = 0
    unfinished: bool = False
    user: str = ""
    account: str = ""
    partition: str = ""
    shares: tuple[NodeShare, ...] = ()

    @property
    def began_seconds(self) -> float:
        """Its start, or what comes nearest to it where that is not recorded."""
        if self.start_seconds is not None:
            return self.start_seconds
        return self.submit_seconds if self.end_seconds is None else self.end_seconds - (self.seconds or 0.0)

    def follows(self, before: _Run) -> bool:
        """Whether it may be another run of the same job."""
        if before.unfinished or before.user != self.user:
            return False
        over = before.began_seconds + (before.seconds or 0.0)
        apart = self.seconds is None or self.began_seconds >= over - CLOCK_SECONDS
        return apart and (self.submit_seconds == before.submit_seconds or before.state in GIVES_WAY)

    def repeats(self, before: _Run) -> bool:
        """Whether it is the same run, seen at another time or written twice."""
        return (self.submit_seconds, self.began_seconds) == (before.submit_seconds, before.began_seconds)


def read_sacct(path: Path, strict: bool = False) -> Recording:
    """Read what `sacct -P` (or `-p`) printed.

    Raises:
        BadInput: the file cannot be used; in strict reading, a line is malformed.
    """
    intake = Intake(path, strict, "JobID")
    runs: dict[str, list[_Run]] = {}
    spoiled: set[str] = set()
    steps = 0
    checked = False
    for row in _rows(path, intake):
        if not checked:
            _check_columns(row)
            checked = True
        if "." in (row.optional("JobID") or ""):  # 123.batch, 123_4.0
            steps += 1
            continue
        try:
            runs.setdefault(row.text("JobID"), []).append(_run(row))
        except MalformedRow as error:
            intake.on_malformed(error)
            spoiled.add(row.optional("JobID") or "")
    ends: Counter[str] = Counter()
    in_pieces = given_again = 0
    for job_id, of_id in runs.items():
        for number, of_job in enumerate(_by_job(intake, job_id, of_id), start=1):
            given_again += number > 1
            with intake.one():
                if job_id in spoiled:
                    raise LeftOut(INCOMPLETE)
                intake.keep(_record(job_id if number == 1 else f"{job_id} ({number})", of_job))
                ends[of_job[-1].state] += 1
                in_pieces += len(of_job) > 1
    notes = [
        f"state: {', '.join(f'{count} {state}' for state, count in sorted(ends.items()))};"
        " failed and cancelled jobs count with the time that they ran",
        ZONE_NOTE,
    ]
    if in_pieces:
        notes.append(
            f"{in_pieces} jobs ran more than once (requeued, preempted, resized): each is one request, with the sum of"
            " its runs"
        )
    else:
        notes.append("no job is in it more than once: without sacct -D, earlier runs of requeued jobs are missing")
    if given_again:
        notes.append(f"{given_again} jobs have an id that an earlier one had")
    if steps:
        notes.append(f"{steps} job steps are part of their jobs, and left out")
    return intake.recording(*notes, hint=HINT)


def _by_job(intake: Intake, job_id: str, runs: list[_Run]) -> list[list[_Run]]:
    """The runs with one id, those of each job together; what stands there twice is malformed."""
    if len(runs) == 1:
        return [runs]
    jobs: list[list[_Run]] = []
    for run in sorted(runs, key=lambda run: (run.submit_seconds, run.began_seconds, run.unfinished)):
        before = jobs[-1][-1] if jobs else None
        if before is None or not (run.repeats(before) or run.follows(before)):
            jobs.append([run])
        elif run.follows(before) and not run.repeats(before):
            jobs[-1].append(run)
        elif not run.unfinished:  # else a list of before it ended, beside one of after it
            intake.on_malformed(intake.stands_twice(job_id, run.line, before.line))
    return jobs


def _rows(path: Path, intake: Intake) -> Iterator[Row]:
    """The lines; what `sacct` printed in another way than is read is answered in its own words."""
    try:
        yield from read_rows(
            path, COLUMNS, intake.on_malformed, delimiter="|", quoted=False, how_to_get=HOW_TO_GET, whole_lines=True
        )
    except OtherColumns as error:
        header = "|".join(error.names)
        if not looks_like_sacct(header):
            raise
        faults, missing = [], error.missing
        if "|" not in header:
            mark = next((name for mark, name in _MARKS.items() if mark in header), "blanks")
            faults.append(f"its columns are divided by {mark}, and sacct -P (--parsable2) divides them by '|'")
            words = re.split(r"[,;\s\"]+", header)
            missing = [name for name in COLUMNS if name not in words]
        faults += [f"column {name} is missing" for name in missing]
        raise BadInput(f"{path}: looks like what sacct prints, but {'; '.join(faults)}; {HOW_TO_GET}") from error


def _check_columns(row: Row) -> None:
    for names, what in ((LENGTHS, "how long a job ran"), (RESOURCES, "how many GPUs a job had")):
        if not any(name in row.cells for name in names):
            raise BadInput(f"{row.path}: none of the columns {', '.join(names)} says {what}; {HOW_TO_GET}")


def _run(row: Row) -> _Run:
    submit = stated_moment(row.optional("Submit"), "Submit", row)
    state, user = _state(row), row.optional("User") or ""
    ran = not (unstated(row.optional("Start")) or unstated(row.optional("End")))
    if state in ACTIVE and not (state in GOES_ON and ran):
        start = moment_if_any(row.optional("Start"))
        return _Run(row.line, state, submit, start, unfinished=True, user=user)
    gpus = _gpus(row)
    start = moment(row.optional("Start"), "Start", row)
    if "Start" in row.cells and start is None:
        return _Run(row.line, state, submit, user=user)
    seconds = _seconds(row, start)
    end = moment_if_any(row.optional("End"))
    if end is None and start is not None:
        end = start + seconds
    return _Run(
        row.line,
        state,
        submit,
        start,
        end,
        seconds,
        gpus,
        user=user,
        account=row.optional("Account") or "",
        partition=row.optional("Partition") or "",
        shares=() if start is None or end is None else _shares(row, gpus, start, end),
    )


def _record(job_id: str, runs: Sequence[_Run]) -> RecordedJob:
    """The job of these runs, one after the other."""
    if runs[-1].unfinished or runs[-1].state in GOES_ON:
        raise LeftOut(UNFINISHED)
    pieces = [
        Piece(run.began_seconds, run.began_seconds + run.seconds, run.gpus) for run in runs if run.seconds is not None
    ]
    if not pieces:
        raise LeftOut(NEVER_STARTED)
    first, last = runs[0], runs[-1]
    held = as_one_request(pieces) if len(runs) > 1 else Held(last.gpus, last.seconds or 0.0)
    return RecordedJob(
        first.line,
        job_id,
        first.submit_seconds,
        held.seconds,
        round(held.gpus),
        start_seconds=next((run.start_seconds for run in runs if run.seconds is not None), None),
        end_seconds=next((run.end_seconds for run in reversed(runs) if run.seconds is not None), None),
        user=first.user,
        account=last.account,
        partition=last.partition,
        shares=tuple(share for run in runs for share in run.shares),
    )


def _state(row: Row) -> str:
    """The state without what follows it, as in `CANCELLED by 1000`."""
    state = row.text("State").split()[0].rstrip("+").upper()
    if state not in ENDED and state not in ACTIVE:
        raise row.bad("State", f"is {shown(row.text('State'))}", "use one of Slurm's job states, in full")
    return state


def _seconds(row: Row, start: float | None) -> float:
    """How long the job ran: from the first column that says so."""
    if not unstated(row.optional("ElapsedRaw")):
        return row.seconds_from_zero("ElapsedRaw")
    length = row.optional("Elapsed")
    if length is not None and not unstated(length):
        return elapsed(length, "Elapsed", row)
    end = stated_moment(row.optional("End"), "End", row)
    if start is None:
        raise row.bad("Start", "is not in the file, nor how long the job ran", "ask sacct for ElapsedRaw")
    return span(start, end, ("Start", "End"), row)


def _shares(row: Row, gpus: int, start: float, end: float) -> tuple[NodeShare, ...]:
    """What the job held of which node; nothing where its nodes are not recorded."""
    nodes = node_names(row.optional("NodeList") or "")
    cpus = _CPU.search(row.optional("AllocTRES") or "")
    return even_shares(nodes, gpus, start, end, int(cpus[1]) if cpus else 0)


def node_names(text: str) -> list[str]:
    """The nodes of a list such as `gpu[01-03,07],big1`; none of one that is written otherwise."""
    if unstated(text) or text.lower() == "none assigned":
        return []
    names: list[str] = []
    at = 0
    while at < len(text):
        match = _NODES.match(text, at)
        if match is None:
            return []
        at = match.end()
        if match["numbers"] is None:
            names.append(match["prefix"])
            continue
        for part in match["numbers"].split(","):
            first, dash, last = part.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                return []
            numbers = range(int(first), int(last or first) + 1)
            if len(names) + len(numbers) > MOST_NODES:
                return []
            names += [f"{match['prefix']}{number:0{len(first)}d}{match['suffix']}" for number in numbers]
    return names


def _gpus(row: Row) -> int:
    """GPUs that the job was given or, if nothing is recorded of that, asked for."""
    for column in RESOURCES:
        text = row.optional(column)
        if text is not None:
            return _gpus_of(text, column, row)
    return 0


def _gpus_of(text: str, column: str, row: Row) -> int:
    """The whole count where there is one; counts by type (`gres/gpu:v100=4`) are parts of it."""
    typed = 0
    for part in text.split(","):
        match = _GPU.fullmatch(part.strip())
        if match is None:
            continue
        count = match["count"]
        if not (count.isascii() and count.isdigit() and len(count) <= len(str(MOST_GPUS)) and int(count) <= MOST_GPUS):
            raise row.bad(column, f"has {shown(part.strip())}", f"write gres/gpu=N with N from 0 to {MOST_GPUS}")
        if match["type"] is None:
            return int(count)
        typed += int(count)
    return typed
