"""Every answer that an elastic job's coordinator can give, with every bad value in it: used, or refused in one line.

A coordinator is known by its certificate, or runs on the same machine; what is looked at here is that one of another
version, or one that a failing disk or memory turned, is met with a line and not with a traceback.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bad_fields import attacks
from google.protobuf.message import Message

from elastic_runtime.control.conversions import outcome_from_message, status_from_message, to_message, view_from_message
from elastic_runtime.control.messages import JobStatus, RequestState, TaskStatus
from elastic_runtime.errors import ElasticError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.launcher.commands.job_tables import job_table, jobs_table
from elastic_runtime.launcher.job_status import status_record
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_table import ProcessPlan
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, Timeline, View
from foundation.tables import table_console

LONGEST_LINE = 600
PLACE = {"launcher": 1, "script": "train.py", "folder": "/jobs/digits"}
CHANGE = Change(3, 20, (ChangeStage({0: "ps-0"}, ("worker-0",), {1: "ps-1"}),), True)
VIEW = View(
    number=5,
    generation=1,
    phase=JobPhase.RUNNING,
    start_step=0,
    start_checkpoint="step-0000000000",
    start_plan=Plan(("worker-0",), ("ps-0", "ps-0"), replicas=("ps-1", "")),
    changes=(CHANGE,),
    proposal=Change(4, 30),
    members=(Member("worker-0", TaskRole.WORKER, 7, "{}"), Member("ps-0", TaskRole.SERVER, 7, "{}")),
    substitutes={"worker-1": "worker-0"},
    wanted=("worker-2",),
    leaving=("worker-0",),
    lost_servers=("ps-2",),
)
STATUS = JobStatus(
    "digits",
    JobPhase.RUNNING,
    tasks=(TaskStatus("worker-0", TaskRole.WORKER, "member"),),
    requests=(RequestState("r", "resize"),),
    replicas=2,
    blocks=64,
    blocks_with_replica=60,
    failures=7,
    failures_in_a_row=1,
    last_failure="worker-3: ValueError: no",
)


def shown(message: Message) -> None:
    """As a user sees a status, in both forms."""
    facts = {**status_record(status_from_message(message)), **PLACE}  # type: ignore[arg-type]
    json.dumps(facts, allow_nan=False)
    for table in (job_table(facts), jobs_table([facts])):
        console = table_console()
        console.file = io.StringIO()
        console.print(table)


def followed(message: Message) -> None:
    """As members and the launcher use a view."""
    view = view_from_message(message)  # type: ignore[arg-type]
    timeline = Timeline(view)
    for step in (0, 25):
        timeline.at(step)
    ProcessPlan(LauncherSettings()).decide(view, ("worker-0",), 0.0)


ANSWERS: dict[str, tuple[Message, Callable[[Any], object]]] = {
    "JobStatus": (to_message(STATUS), shown),
    "View": (to_message(VIEW), followed),
    "RequestReply": (pb.RequestReply(state="done"), lambda reply: outcome_from_message(reply.state)),
}


def test_words_that_look_like_markup_are_shown_as_they_are() -> None:
    words = "KeyError: [/red] :smile: [bold]x"
    status = replace(STATUS, failure=words, requests=(RequestState("[/r]", "resize", detail=words),))
    facts = {**status_record(status), **PLACE}
    console = table_console()
    console.file = io.StringIO()
    console.print(job_table(facts))
    assert console.file.getvalue().count(words) == 2
    assert "[/r]" in console.file.getvalue()


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_bad_value_in_an_answer_is_used_or_refused(kind: str) -> None:
    good, use = ANSWERS[kind]
    use(good)
    wrong = []
    for attack in attacks(good):
        try:
            use(attack.message)
        except ElasticError as error:
            if not str(error).isprintable() or len(str(error)) > LONGEST_LINE:
                wrong.append(f"{attack.label}: said {str(error)[:200]!r}")
        except Exception as error:
            wrong.append(f"{attack.label}: {type(error).__name__}: {str(error)[:200]}")
    assert not wrong, f"{kind}:\n" + "\n".join(wrong)
