"""Members after they joined: what they report, how they fail and end, and how it is noticed that they are gone.

A task that fails by its own fault is replaced, or another try would end the same and nobody waits for one.

Servers compare the digest of each block that they read. A damaged checkpoint is passed over: the job goes back to the
newest sound one, and says so. What a server says is looked at again where all checkpoints are, before one is passed
over: a server whose disk is not there sees damage too, and is what is at fault.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace

import structlog

from elastic_runtime.control.messages import MemberReport, RequestState, Size
from elastic_runtime.coordinator.rules import leases, requests
from elastic_runtime.coordinator.rules.changes import end_early
from elastic_runtime.coordinator.rules.checkpointing import SearchOrder, SearchResult
from elastic_runtime.coordinator.rules.generations import end_search, fail
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import GATHERING, withdraw_proposal
from elastic_runtime.coordinator.rules.requests import end_resize
from elastic_runtime.coordinator.rules.state import Checkpoints, Purpose, TaskState
from elastic_runtime.coordinator.rules.tasks import lose, pause, recover
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import ENDED, OVER, TaskRole
from foundation.errors import BAD_INPUT, UNREACHABLE
from foundation.text import describe_end, plain_line

_log = structlog.get_logger()
_TERMINATED = 128 + signal.SIGTERM
"""As shells, and many handlers, say that it was SIGTERM."""
_LONGEST_PAUSE_SECONDS = 60.0
_NEVER_JOINED = (
    "its script ended without having joined the job: it has to call elastic_runtime.join, and to train with what that "
    "gives it"
)


# A script that raises is started again a few times, as some failures pass. It is not where every worker of the job has
# raised the same at the same step and none is left, or the only one has twice. What kills processes may be the
# machine's doing: each worker may be killed at one step as often as a script may fail.

_NUMBER = re.compile(r"\d+")
_LEAST_ALIKE = 2


@dataclass
class Repeats:
    """Newest end of a worker, its step, and how many workers have ended so one after the other.

    Attributes:
        last: the newest end in words, for a line about all of them.
    """

    what: str = ""
    step: int = -1
    count: int = 0
    last: str = ""

    def add(self, job: CoordinatedJob, name: str, words: str, step: int, hint: str = "") -> None:
        """Count a worker's end; `words` say how, `hint` why. Numbers in them, such as a slice's size, may differ."""
        what = _NUMBER.sub("#", words.replace(name, ""))
        self.count = self.count + 1 if (what, step) == (self.what, self.step) else 1
        self.what, self.step = what, step
        self.last = f"{name} {words} {_at_step(job, step)}{hint}"


def _newest_step(job: CoordinatedJob, name: str) -> int:
    """Step that a worker was at, or that others say that the job is at: a task that is killed says nothing."""
    steps = [job.report(task.name).step for task in job.tasks()]
    return max([job.report(name).step, job.state.generation.start_step, *steps])


def _at_step(job: CoordinatedJob, step: int) -> str:
    total = job.total_steps()
    return f"at step {step}" + (f" of {total}" if total else "")


def repeated_failure(job: CoordinatedJob) -> str:
    """Why it is in vain to start workers again whose script failed; empty if it may help."""
    repeats, workers = job.own(Repeats), job.state.course.target.workers
    if repeats.count < max(_LEAST_ALIKE, workers) or job.live(TaskRole.WORKER):
        return ""
    who = f"all {workers} workers" if workers > 1 else f"{repeats.count} tries"
    return f" ({who} failed alike {_at_step(job, repeats.step)})"


def repeated_death(job: CoordinatedJob) -> str:
    """Why it is in vain to start workers again that are killed; empty if it may help."""
    repeats = job.own(Repeats)
    allowed = job.settings.restarts * max(1, job.state.course.target.workers)
    if repeats.count < max(_LEAST_ALIKE, allowed + 1):
        return ""
    return f"{repeats.last}; {repeats.count} workers ended so at that step"


def on_coordinator_return(job: CoordinatedJob, now: float) -> None:
    """Begin with a remembered state: everybody has the whole time to report, and no vote is known."""
    for task in job.tasks():
        if task.live:
            job.reports.expect(task.name, task.incarnation, now)
    withdraw_proposal(job.state)
    job.state.set_course(notice="")
    checkpoints = job.state.checkpoints
    if checkpoints.pending is not None:
        job.state.checkpoints = replace(checkpoints, pending=replace(checkpoints.pending, shards=()))


def on_gap(job: CoordinatedJob, now: float, seconds: float) -> None:
    """Give everybody the whole time to report, as this coordinator did not run for a while, and could hear nobody."""
    if seconds >= 1.0:  # less is a busy machine
        _log.warning("coordinator-was-stopped", seconds=round(seconds, 1), silence="of the job's tasks counts anew")
    for task in job.tasks():
        if task.live:
            job.reports.on_gap(task.name, now)


def on_relaunch(job: CoordinatedJob, size: Size) -> None:
    """Begin with this size and no tasks or requests, as all processes of the job have ended with their launcher.

    Were lost tasks replaced first, and the job resized then, it would for a while take what others have by now.
    """
    if job.state.course.phase in OVER:
        return
    requests.abort_all(job, "its launcher ended")
    for task in job.tasks(None, TaskState.WANTED, TaskState.LIVE, TaskState.LEAVING):
        job.put(replace(task, state=TaskState.GONE))
        job.reports.forget(task.name)
    if job.is_training:
        recover(job)
    job.state.set_course(target=size, settled=size, formed=False)


def on_report(job: CoordinatedJob, report: MemberReport, now: float) -> bool:
    """Take a report; False if the process is not part of the job (any more).

    Raises:
        BadInput: it says that more steps are done than the job has.
    """
    steps = job.model.total_steps if job.model is not None else None
    if steps is not None and report.step > steps:
        raise BadInput(f"{report.task} says that it is at step {report.step}; job {job.settings.job} has {steps}")
    task = job.task(report.task)
    if task is None or not task.live or task.incarnation != report.incarnation:
        return False
    if report.generation > job.state.generation.number:
        return False  # of a coordinator whose state was lost
    if report.draining and not job.reports.of(report.task).draining:
        _log.info("task-draining", task=report.task)
    job.reports.on_report(report, now)
    if report.failure and job.state.course.phase not in ENDED and not report.signalled:
        on_failure(job, report.task, report.failure, now, bad_input=report.bad_input, raised=True)
        return False
    if report.finished and report.generation > 0 and not _is_of_now(job, report):
        # Its loop ended before the job went back: steps that are done again are done by others.
        lose(job, report.task, "it had finished before the job went back")
        return False
    if report.finished and job.is_training:
        # Who has the last step's values has all blocks' values: nobody has anything left to push.
        withdraw_proposal(job.state)
        if not job.state.generation.ended:
            end_early(job, report.step)
        if job.is_training:
            job.state.set_generation(ended=True)
    requests.note_stall(job, report)
    if report.left:
        lose(job, report.task, "it left")
    return True


def _is_of_now(job: CoordinatedJob, report: MemberReport) -> bool:
    """Whether a report is of the present generation, and not of one that the job went back from."""
    gathering = job.state.course.phase in GATHERING and not job.state.course.formed
    return report.generation == job.state.generation.number and not gathering


def on_process_ended(job: CoordinatedJob, name: str, exit_code: int, last_line: str, now: float) -> None:
    """Take note of the end of a task's process; one that SIGTERM ended was drained, whatever its handler did."""
    task = job.task(name)
    if task is None:
        return
    missed = task.state is not TaskState.LEAVING and job.state.course.phase not in ENDED
    step = _newest_step(job, name)
    reported = job.reports.of(name)
    if exit_code == _TERMINATED or reported.signalled or (exit_code == 0 and reported.draining):
        exit_code = -signal.SIGTERM
    if missed and exit_code > 0 and exit_code != UNREACHABLE:  # it waited for us in vain: no failure of the script
        words = _last_words(job, exit_code, last_line, step)
        on_failure(job, name, words, now, bad_input=exit_code == BAD_INPUT)
    elif missed and exit_code == 0 and task.role is TaskRole.WORKER and task.state is TaskState.WANTED:
        on_failure(job, name, _NEVER_JOINED, now, bad_input=True)  # neither would the next one
    elif missed and exit_code == 0 and task.role is TaskRole.WORKER and not job.reports.of(name).finished:
        on_failure(
            job,
            name,
            "its script ended before the job did; let its loop over the job's batches come to its end, or leave it by "
            "break or job.end()",
            now,
        )
    else:
        if missed and exit_code < 0 and task.role is TaskRole.WORKER:
            # Of a process that is killed without a word the kernel is the usual killer.
            hint = ", most likely as memory ran out" if -exit_code == signal.SIGKILL else ""
            job.own(Repeats).add(job, name, describe_end(exit_code), step, hint)
        lose(job, name, f"its process ended with {exit_code}")
    _check_losses(job)


def _last_words(job: CoordinatedJob, exit_code: int, last_line: str, step: int) -> str:
    """Reason of a process's end, for people: its last line has it where Python ended it, by an exception."""
    if exit_code in (1, BAD_INPUT) and last_line:
        return last_line
    return (
        f"{describe_end(exit_code)}: {last_line}" if last_line else f"{describe_end(exit_code)} {_at_step(job, step)}"
    )


def watch(job: CoordinatedJob, now: float) -> None:
    """Lose members that are silent for too long, or that nobody reaches."""
    settings = job.settings
    for task in job.tasks():
        if not task.live:
            continue
        silent, contact = job.reports.silent_seconds(task.name, now), job.reports.contact(task.name)
        if contact.new:  # on a busy machine a process needs long from its registration to its first word
            limit = settings.first_report_seconds
        else:
            limit = settings.silent_seconds if contact.streams else settings.lost_seconds
        if silent >= limit:
            lose(job, task.name, f"silent for {silent:.1f} s")
    for name in _unreachable(job):
        if not job.timers.runs(f"suspect {name}"):
            _log.info("task-suspected", task=name)
        if job.timers.passed(f"suspect {name}", now, settings.suspect_seconds):
            lose(job, name, "its peers say that it does not answer")
            break  # what the others wait for may come now
    _check_losses(job)


def _unreachable(job: CoordinatedJob) -> list[str]:
    """Who is cut off from its peers: workers first, as nothing is lost with one.

    A worker that still computes suspects nobody, so slow workers make no server suspect. One whose pushes do not get
    through makes every worker wait for every server; but the servers, to which the others' pushes come, name it.
    """
    if not job.is_training:
        return []
    workers, servers = job.live_workers(), list(job.plan().servers)
    found = _cut_off(job, workers, servers)
    if not found and workers:
        found = [name for name in servers if all(name in job.report(peer).suspects for peer in workers)]
    for name in (*workers, *servers):
        if name not in found:
            job.timers.clear(f"suspect {name}")
    return found


def _cut_off(job: CoordinatedJob, workers: list[str], servers: list[str]) -> list[str]:
    """Workers that a server waits for while they wait for it: for every server, or one that other workers reach.

    The only worker of several servers, none of which answers it, is cut off itself. In asynchronous training no server
    waits for anybody: there it is the others, which wait for servers only, that show whether a server can be reached.
    """
    if job.is_asynchronous:
        waiting = {worker: set(job.report(worker).suspects) & set(servers) for worker in workers}
        all_wait_for = set(servers).intersection(*waiting.values())
        return [worker for worker in workers if waiting[worker] - all_wait_for]
    apart = {
        worker: {s for s in servers if s in job.report(worker).suspects and worker in job.report(s).suspects}
        for worker in workers
    }
    if len(workers) == 1 < len(servers) and set(servers) <= set(job.report(workers[0]).suspects):
        return workers
    reached = [server for server in servers if any(server not in apart[worker] for worker in workers)]
    return [
        worker for worker in workers if len(apart[worker]) == len(servers) or any(s in reached for s in apart[worker])
    ]


def _check_losses(job: CoordinatedJob) -> None:
    course = job.state.course
    if course.phase in ENDED:
        return
    if course.losses > job.settings.losses:
        last = job.own(Repeats).last
        fail(
            job,
            f"{course.losses} tasks were lost and no step became durable since; "
            + (f"the last worker, {last}" if last else "see their output"),
        )
    elif why := repeated_death(job):
        fail(job, why)


def on_failure(
    job: CoordinatedJob, name: str, words: str, now: float, *, bad_input: bool = False, raised: bool = False
) -> None:
    """Take note that a task failed.

    After so many failures (`restarts`) without a durable step in between the job fails with its line. With some in
    between its worker is replaced as often as that happens, more and more slowly; the status says how often. A job that
    is being stopped is not failed by what ends with it.

    Of bad input, such as another model or a wrong token, the job fails at once: the task's successor would end like it.
    So it does where all workers fail alike. A resize that wanted the task is given up in place of that.

    Args:
        raised: it says so itself, and knows its step.
    """
    line = plain_line(words)
    _log.warning("task-failed", task=name, line=line, bad_input=bad_input)
    if requests.is_stopping(job):
        lose(job, name, line)
        return
    failures = job.state.course.failures.and_another(job.durable_step(), job.unix_clock())
    step = job.report(name).step if raised else _newest_step(job, name)
    what = line if line.startswith(name) else f"{name}: {line}"
    job.state.set_course(failures=failures, last_failure=f"{what} ({_at_step(job, step)})")
    pause(job, failures.pause_seconds(job.settings.restart_seconds, _LONGEST_PAUSE_SECONDS), now)
    resize = _resize_for(job, name)
    worker = (task := job.task(name)) is not None and task.role is TaskRole.WORKER
    if worker and not bad_input:
        job.own(Repeats).add(job, name, f"failed ({line})", step)
    lose(job, name, line)
    if bad_input and resize is not None:
        if job.state.generation.purpose is Purpose.RESIZE:
            withdraw_proposal(job.state)  # the resize's; one of a checkpoint, or a repair, goes on
        end_resize(job, resize, f"{what}; nothing changed")
    elif bad_input:
        fail(job, what)
    elif worker and (why := repeated_failure(job)):
        fail(job, what + why)
    elif failures.in_a_row > job.settings.restarts:
        allowed = "1 restart is" if job.settings.restarts == 1 else f"{job.settings.restarts} restarts are"
        tried = f" ({failures.in_a_row} failures, no step durable in between; {allowed} allowed)"
        fail(job, what + (tried if failures.in_a_row > 1 else ""))


def _resize_for(job: CoordinatedJob, name: str) -> RequestState | None:
    """Resize without which a job that trains would not need this task, if nothing of it holds yet."""
    running = requests.running(job)
    if running is None or running.kind != "resize" or not job.is_training:
        return None
    if job.moving_change() is not None and job.state.generation.purpose is Purpose.RESIZE:
        return None  # it was agreed to, and is not taken back
    plan = job.plan()
    return None if name in plan.workers or name in plan.servers else running


def on_checkpoint_searched(
    job: CoordinatedJob, order: SearchOrder, search: SearchResult | None, error: str, now: float
) -> None:
    """Take the result of a search for a sound checkpoint; without one, `error` says why."""
    end_search(job)
    generation, course = job.state.generation, job.state.course
    if order.generation != generation.number or course.phase not in GATHERING:
        return  # what was looked for is not needed any more
    complaints = {name: job.report(name).damage for name in generation.start_plan.servers if job.report(name).damage}
    if search is None or not search.damaged:
        for name, line in complaints.items():
            on_failure(job, name, error or line, now)
        return
    if search.sound is None:
        fail(job, search.line)
        return
    names = [name for name, _ in job.state.checkpoints.durable]
    kept = job.state.checkpoints.durable[: names.index(search.sound.name) + 1]
    job.state.checkpoints = Checkpoints(kept, search.sound.book_json)
    leases.go_back(job, search.sound.book_json)
    job.state.set_course(formed=False, notice=search.line)
    job.timers.clear("start", "gather")
