"""Slurm's accounting: what `sacct -aXD -P` prints; which columns are asked for, and what becomes of each.

A job that was requeued, preempted or resized, or lost its node, has a row for every run: one request, with the sum of
its runs. An id that Slurm gave out again is another job: its rows overlap in time, or have another submission though
nothing had made the job before give way.
Source: sacct(1) and Slurm's description of trackable resources; scontrol(1), `show hostnames`, for node lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foundation.figures import counted
from policy_net.accelerators import MOST_ON_A_NODE, Counted, gres_counted_as, not_counted, too_many
from policy_net.errors import BadInput, MalformedRow, OtherColumns
from policy_net.laboratory.csv_rows import MOST_GPUS, CsvRow, read_rows, shown
from policy_net.laboratory.workloads.loaders.record import (
    INCOMPLETE,
    NEVER_STARTED,
    UNFINISHED,
    AllocatedGpus,
    Intake,
    LeftOut,
    NodeShare,
    RecordedJob,
    Recording,
    WholeRequest,
    as_one_request,
    even_shares,
)
from policy_net.laboratory.workloads.loaders.values import (
    ZONE_NOTE,
    Item,
    elapsed,
    is_json,
    item,
    moment,
    moment_if_any,
    read_json,
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
JSON_UNIT = "job"
JSON_EXPECTED = "give what `sacct -aXD --json` prints"
MOST_NODES = 100_000
"""Of one job; a list of more is no list of nodes."""
_CPU = re.compile(r"cpu=(\d{1,7})")
_NODES = re.compile(r"(?P<prefix>[^\[\],]+)(?:\[(?P<numbers>[\d,-]+)\](?P<suffix>[^\[\],]*))?(?:,|$)")
_GRES = re.compile(r"gres/(?P<name>[^:=]+)(?::(?P<type>[^=]+))?=(?P<count>.*)")
_TASK_NODES = re.compile(r"(?:^|,)node=(\d{1,7})(?:,|$)")


def is_sacct_header(header: str) -> bool:
    """Whether a first line has names of columns that `sacct` prints, whatever divides them."""
    words = set(re.split(r"[|,;\s\"]+", header))
    return bool(words & _IDS) and ("State" in words or len(words & _OTHERS) > 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """One row; `unfinished` if it was written before the run had ended."""

    line: int
    state: str
    submit_seconds: float
    start_seconds: float | None = None
    end_seconds: float | None = None
    seconds: float | None = None
    gpus: int = 0
    not_counted: str = ""
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
        if self.resizes(before):
            return True
        over = before.began_seconds + (before.seconds or 0.0)
        apart = self.seconds is None or self.began_seconds >= over - CLOCK_SECONDS
        return apart and (self.submit_seconds == before.submit_seconds or before.state in GIVES_WAY)

    def resizes(self, before: _Run) -> bool:
        """Whether it goes on from a resize: then it says when that was as its submission, and has the first start."""
        return (
            before.state == "RESIZING"
            and before.end_seconds is not None
            and abs(self.submit_seconds - before.end_seconds) <= CLOCK_SECONDS
        )

    def since_its_resize(self) -> _Run:
        """Without the time before, which its elapsed time has in it too."""
        if self.start_seconds is None or self.seconds is None or self.start_seconds >= self.submit_seconds:
            return self
        return replace(
            self,
            start_seconds=self.submit_seconds,
            seconds=max(0.0, self.seconds - (self.submit_seconds - self.start_seconds)),
            shares=tuple(replace(share, start_seconds=self.submit_seconds) for share in self.shares),
        )

    def repeats(self, before: _Run) -> bool:
        """Whether it is the same run, seen at another time or written twice."""
        return (self.submit_seconds, self.began_seconds) == (before.submit_seconds, before.began_seconds)


def read_sacct(path: Path, strict: bool = False) -> Recording:
    """Read what `sacct -P` (or `-p`, or `--json`) printed.

    Raises:
        BadInput: the file cannot be used; in strict reading, a line is malformed.
    """
    as_json = is_json(path)
    intake = Intake(path, strict, "JobID", JSON_UNIT if as_json else "line")
    runs: dict[tuple[str, str], list[_Run]] = {}  # by cluster and id
    spoiled: set[tuple[str, str]] = set()
    steps = 0
    checked = False
    for row in _json_rows(path, intake) if as_json else _rows(path, intake):
        if not checked:
            _check_columns(row)
            checked = True
        if "." in (row.optional("JobID") or ""):  # 123.batch, 123_4.0
            steps += 1
            continue
        cluster = row.optional("Cluster") or ""
        try:
            runs.setdefault((cluster, row.text("JobID")), []).append(_run(row, intake))
        except MalformedRow as error:
            intake.on_malformed(error)
            spoiled.add((cluster, row.optional("JobID") or ""))
    ends: Counter[str] = Counter()
    in_pieces = given_again = 0
    for (cluster, job_id), of_id in runs.items():
        for number, of_job in enumerate(_by_job(intake, job_id, of_id), start=1):
            given_again += number > 1
            with intake.one():
                if (cluster, job_id) in spoiled:
                    raise LeftOut(INCOMPLETE)
                intake.keep(_record(job_id if number == 1 else f"{job_id} ({number})", of_job), cluster)
                ends[of_job[-1].state] += 1
                in_pieces += len(of_job) > 1
    notes = [
        f"state: {', '.join(f'{count} {state}' for state, count in sorted(ends.items()))};"
        " failed and cancelled jobs count with the time that they ran",
        ZONE_NOTE,
    ]
    if in_pieces:
        notes.append(
            f"{counted(in_pieces, 'job')} ran more than once (requeued, preempted, resized): each is one request, with"
            " the sum of its runs"
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
            jobs[-1].append(run.since_its_resize() if run.resizes(before) else run)
        elif not run.unfinished:  # else a list of before it ended, beside one of after it
            intake.on_malformed(intake.duplicate(job_id, run.line, before.line))
    return jobs


def _rows(path: Path, intake: Intake) -> Iterator[CsvRow]:
    """The lines; what `sacct` printed in another way than is read is answered in its own words."""
    try:
        yield from read_rows(
            path, COLUMNS, intake.on_malformed, delimiter="|", quoted=False, how_to_get=HOW_TO_GET, whole_lines=True
        )
    except OtherColumns as error:
        header = "|".join(error.names)
        if not is_sacct_header(header):
            raise
        faults, missing = [], error.missing
        if "|" not in header:
            mark = next((name for mark, name in _MARKS.items() if mark in header), "blanks")
            faults.append(f"its columns are divided by {mark}, and sacct -P (--parsable2) divides them by '|'")
            words = re.split(r"[,;\s\"]+", header)
            missing = [name for name in COLUMNS if name not in words]
        faults += [f"column {name} is missing" for name in missing]
        raise BadInput(f"{path}: looks like what sacct prints, but {'; '.join(faults)}; {HOW_TO_GET}") from error


def _json_rows(path: Path, intake: Intake) -> Iterator[CsvRow]:
    """The runs of `sacct --json`, in the columns of `sacct -P`."""
    content = read_json(path, JSON_EXPECTED)
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list):
        raise BadInput(f"{path}: holds no list under 'jobs'; {JSON_EXPECTED}")
    for number, value in enumerate(jobs, start=1):
        try:
            yield CsvRow(path, number, _cells(item(path, number, JSON_UNIT, value)), JSON_UNIT)
        except MalformedRow as error:
            intake.on_malformed(error)


def _cells(job: Item) -> dict[str, str]:
    owner = job.part("association", needed=False)
    times = job.part("time").fields
    state = job.part("state").fields.get("current")
    tres = job.part("tres", needed=False)
    stamps = {name: _number(times.get(name)) for name in ("submission", "start", "end", "elapsed", "suspended")}
    known = [word for word in (state if isinstance(state, list) else [state]) if word in ENDED | ACTIVE]
    return {
        "JobID": _json_id(job),
        "Submit": stamps["submission"],
        "Start": stamps["start"] if stamps["start"] != "0" else "",
        "End": stamps["end"] if stamps["end"] != "0" else "",
        "ElapsedRaw": stamps["elapsed"],
        "Suspended": stamps["suspended"],
        "State": known[0] if known else str(state or ""),
        "AllocTRES": _tres(tres, "allocated"),
        "ReqTRES": _tres(tres, "requested"),
        "NodeList": job.word("nodes"),
        "Cluster": job.word("cluster") or owner.word("cluster"),
        **{name.capitalize(): job.word(name) or owner.word(name) for name in ("user", "account", "partition")},
    }


def _json_id(job: Item) -> str:
    """As `sacct -P` has it: of an array's task, and of a component of a heterogeneous job."""
    array = job.part("array", needed=False).fields
    task = array.get("task_id")
    whole, number = _number(array.get("job_id")), _number(task)
    if whole not in ("", "0") and number and not (isinstance(task, dict) and task.get("set") is False):
        return f"{whole}_{number}"
    parts = job.part("het", needed=False).fields
    whole, number = _number(parts.get("job_id")), _number(parts.get("job_offset"))
    return f"{whole}+{number}" if whole not in ("", "0") and number else _number(job.fields.get("job_id"))


def _number(value: Any) -> str:
    """A number as it stands, or as newer versions write it: `{"set": true, "infinite": false, "number": 8}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def _tres(tres: Item, kind: str) -> str:
    found = []
    for each in tres.parts(kind, needed=False):
        name = each.word("name")
        found.append(f"{each.word('type')}{name and '/'}{name}={_number(each.fields.get('count'))}")
    return ",".join(found)


def _check_columns(row: CsvRow) -> None:
    for names, what in ((LENGTHS, "how long a job ran"), (RESOURCES, "how many GPUs a job had")):
        if not any(name in row.cells for name in names):
            raise BadInput(f"{row.path}: none of the columns {', '.join(names)} says {what}; {HOW_TO_GET}")


def _run(row: CsvRow, intake: Intake) -> _Run:
    submit = stated_moment(row.optional("Submit"), "Submit", row)
    state, user = _state(row), row.optional("User") or ""
    ran = not (unstated(row.optional("Start")) or unstated(row.optional("End")))
    if state in ACTIVE and not (state in GOES_ON and ran):
        start = moment_if_any(row.optional("Start"))
        return _Run(row.line, state, submit, start, unfinished=True, user=user)
    gpus, uncounted = _gpus(row)
    start = moment(row.optional("Start"), "Start", row)
    if "Start" in row.cells and start is None:
        return _Run(row.line, state, submit, user=user)
    seconds = _seconds(row, start)
    end = moment_if_any(row.optional("End"))
    if end is not None and start is not None and not _was_suspended(row):
        name = next(name for name in LENGTHS if not unstated(row.optional(name)))
        intake.compare((name, seconds), ("End - Start", end - start), f"{name}, without time suspended,")
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
        uncounted,
        user=user,
        account=row.optional("Account") or "",
        partition=row.optional("Partition") or "",
        shares=() if start is None or end is None else _shares(row, gpus, start, end),
    )


def _record(job_id: str, runs: Sequence[_Run]) -> RecordedJob:
    if runs[-1].unfinished or runs[-1].state in GOES_ON:
        raise LeftOut(UNFINISHED)
    pieces = [
        AllocatedGpus(run.began_seconds, run.began_seconds + run.seconds, run.gpus)
        for run in runs
        if run.seconds is not None
    ]
    if not pieces:
        raise LeftOut(NEVER_STARTED)
    uncounted = next((run.not_counted for run in runs if run.not_counted), "")
    if uncounted:
        raise LeftOut(uncounted)
    first, last = runs[0], runs[-1]
    whole = as_one_request(pieces) if len(runs) > 1 else WholeRequest(last.gpus, last.seconds or 0.0)
    return RecordedJob(
        first.line,
        job_id,
        first.submit_seconds,
        whole.seconds,
        round(whole.gpus),
        start_seconds=next((run.start_seconds for run in runs if run.seconds is not None), None),
        end_seconds=next((run.end_seconds for run in reversed(runs) if run.seconds is not None), None),
        user=first.user,
        account=last.account,
        partition=last.partition,
        shares=tuple(share for run in runs for share in run.shares),
    )


def _state(row: CsvRow) -> str:
    """The state without what follows it, as in `CANCELLED by 1000`."""
    state = row.text("State").split()[0].rstrip("+").upper()
    if state not in ENDED and state not in ACTIVE:
        raise row.bad("State", f"is {shown(row.text('State'))}", "use one of Slurm's job states, in full")
    return state


def _seconds(row: CsvRow, start: float | None) -> float:
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


def _was_suspended(row: CsvRow) -> bool:
    """Whether a column says so: that time is not in the elapsed one."""
    suspended = row.optional("Suspended")
    return not (suspended is None or unstated(suspended) or set(suspended) <= set("0:."))


def _shares(row: CsvRow, gpus: int, start: float, end: float) -> tuple[NodeShare, ...]:
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


def _gpus(row: CsvRow) -> tuple[int, str]:
    """GPUs that the job was given or, without a record of that, asked for; and why they are no number of devices."""
    for column in RESOURCES:
        text = row.optional(column)
        if text is not None:
            gpus = _gpus_of(text, column, row)
            named = {
                match["name"]: match["count"]
                for match in map(_GRES.fullmatch, map(str.strip, text.split(",")))
                if match
            }
            others = frozenset(f"gres/{name}" for name in named if gres_counted_as(name) is Counted.NOT)
            if not gpus:
                return 0, not_counted(others) if others else ""
            nodes = _TASK_NODES.search(text)
            count = int(nodes[1]) if nodes else len(node_names(row.optional("NodeList") or "")) or MOST_GPUS
            return gpus, too_many("gres/gpu") if gpus > MOST_ON_A_NODE * max(1, count) else ""
    return 0, ""


def _gpus_of(text: str, column: str, row: CsvRow) -> int:
    """The whole count where there is one; counts by type (`gres/gpu:v100=4`) are parts of it."""
    typed = 0
    for part in text.split(","):
        match = _GRES.fullmatch(part.strip())
        if match is None or match["name"] != "gpu":
            continue
        count = match["count"]
        if not (count.isascii() and count.isdigit() and len(count) <= len(str(MOST_GPUS)) and int(count) <= MOST_GPUS):
            raise row.bad(column, f"has {shown(part.strip())}", f"write gres/gpu=N with N from 0 to {MOST_GPUS}")
        if match["type"] is None:
            return int(count)
        typed += int(count)
    return typed
