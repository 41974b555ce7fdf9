"""What the last days of a cluster were and would have been, from the log of an agent that only advised."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from log_worlds import Interval, live
from rich.console import Console

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_table import JobState, JobTable
from cluster_agent.cli import app, report_table
from cluster_agent.settings import PolicySettings
from foundation.command_line import run
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    ClusterState,
    Job,
    JobKind,
    Node,
    Progress,
    Resources,
)

START = 1_800_000_000.0
SLOT = 300.0


@dataclass
class Ran:
    """A job that its cluster ran at the size that it asked for.

    Attributes:
        said: whether it counts its samples.
    """

    name: str
    submitted: float
    workers: int
    seconds: float
    most: int = 4
    said: bool = True
    trained: float = 0.0
    ended: float | None = None

    @property
    def speed(self) -> float:
        return 100.0 * float(self.workers) ** 0.8

    def job(self, now: float, current: int) -> Job:
        total = self.seconds * self.speed
        shown = total if self.said else 10_000.0
        return Job(
            self.name, "resnet", START + self.submitted, Resources(1000, 1), Resources(0), 1.0, shown,
            shown - self.trained * self.speed * self.said, Allocation(self.workers, 0), self.most, 0,
            self.trained, Allocation(current, 0), JobKind.ALLREDUCE, 1, 0, self.said,
        )  # fmt: skip


def logged(
    folder: Path, jobs: Sequence[Ran], gpus: int = 4, slots: int = 200, episodes: int = 1, held_slots: int = 0
) -> Path:
    """The log of a cluster that runs jobs in order of submission, at the sizes that they ask for.

    Args:
        episodes: the same again and again, from the same time on.
        held_slots: for so long nothing is started, though there is room.
    """
    tape: list[Interval] = []
    for _ in range(episodes):
        tape += _episode([replace(each) for each in jobs] if episodes > 1 else jobs, gpus, slots, held_slots)
    live(folder, tape, CandidateFactory(PolicySettings()).from_name_or_file("set"))
    return folder


def _episode(jobs: Sequence[Ran], gpus: int, slots: int, held_slots: int) -> list[Interval]:
    tape: list[Interval] = []
    for slot in range(slots):
        now, free = slot * SLOT, gpus if slot >= held_slots else 0
        holds: list[tuple[Ran, int]] = []
        for each in jobs:
            if each.submitted <= now and each.ended is None:
                size = each.workers if each.workers <= free else 0
                free -= size
                holds.append((each, size))
        nodes = (Node("a", Resources(8000, gpus)),)
        state = ClusterState(START + now, nodes, tuple(each.job(now, size) for each, size in holds), SLOT)
        progress = []
        for each, size in holds:
            seconds = min(SLOT, each.seconds - each.trained) if size else 0.0
            each.trained += seconds
            over = each.trained >= each.seconds
            each.ended = now + (seconds if each.said else SLOT) if over else None
            samples = seconds * each.speed if each.said else 0.0
            told_seconds = seconds if each.said else 0.0
            held = Allocation(size, 0)
            progress.append(Progress(each.name, "resnet", held, told_seconds, samples, samples, 1.0, over))
        tape.append((state, progress))
    return tape


def jobs() -> list[Ran]:
    return [Ran("one", 0.0, 1, 6000.0), Ran("two", 0.0, 1, 9000.0), Ran("three", 3000.0, 3, 3000.0)]


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(app, "cluster-agent", ["report", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def reported(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, err = typed(capsys, *words, "-o", "json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_average_is_that_of_the_log_and_the_simulation_of_the_same_sizes_comes_near(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = jobs()
    found = reported(capsys, str(logged(tmp_path, ran)))
    average = sum((job.ended or 0.0) - job.submitted for job in ran) / 3
    assert found["jobs"] == 3
    assert found["recorded"]["avgJctSeconds"] == pytest.approx(average)
    assert found["requested"]["avgJctSeconds"] == pytest.approx(average, rel=0.1)
    assert found["advised"]["policy"] == "set"
    assert found["advised"]["avgJctSeconds"] < found["requested"]["avgJctSeconds"], "two GPUs were idle"
    assert found["answer"].startswith("Your 3 jobs would have been done in ")
    assert " less, by what is assumed), on the same 4 GPUs" in found["answer"], "resizes may stop jobs"
    assert (found["nodes"], found["gpus"]) == (1, 4)
    assert not any("caution" in note for note in found["notes"])


def test_jobs_that_say_nothing_count_as_long_as_they_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = [replace(job, said=False) for job in jobs()]
    found = reported(capsys, str(logged(tmp_path, ran)))
    average = sum((job.ended or 0.0) - job.submitted for job in ran) / 3
    assert found["recorded"]["avgJctSeconds"] == pytest.approx(average)
    assert found["requested"]["avgJctSeconds"] == pytest.approx(average, rel=0.1)


def test_a_job_whose_end_is_not_logged_yet_counts_with_the_end_that_its_agent_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Ran("one", 0.0, 1, 6000.0)
    logged(tmp_path, [one], slots=10)  # half an hour before its end the agent had nothing more to decide
    code, _, err = typed(capsys, str(tmp_path))
    assert (code, "no job has ended in the last 7 days of it" in err) == (2, True)
    table = JobTable(tmp_path / "submitted")
    content = {"name": "one", "modelType": "resnet", "script": "train.py", "elastic": True}
    table.add(JobFile.model_validate(content), START)
    table.change("one", state=JobState.DONE, ended_unix_seconds=START + 6000.0)
    found = reported(capsys, str(tmp_path))
    assert (found["jobs"], found["recorded"]["avgJctSeconds"]) == (1, 6000.0)


def test_a_job_made_again_under_its_name_is_another_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = [Ran("nightly", number * 9000.0, 2, 3000.0) for number in range(4)]
    found = reported(capsys, str(logged(tmp_path, again)))
    assert found["jobs"] == 4
    assert found["recorded"]["avgJctSeconds"] == pytest.approx(3000.0)


def test_only_the_last_days_count_and_what_has_not_ended_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = [Ran("old", 0.0, 1, 3000.0), Ran("new", 50_000.0, 1, 3000.0), Ran("long", 50_000.0, 1, 1e6)]
    log = str(logged(tmp_path, ran))
    assert reported(capsys, log, "--days", "0.2")["jobs"] == 1
    assert reported(capsys, log)["jobs"] == 2


def test_a_job_whose_end_came_between_two_looks_keeps_the_sizes_that_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Ran("short", 0.0, 2, 600.0)
    nodes = (Node("a", Resources(8000, 4)),)
    other = Ran("other", 0.0, 1, 1e6)

    def state(number: int, *there: Job) -> ClusterState:
        return ClusterState(START + number * SLOT, nodes, (*there, other.job(0.0, 1)), SLOT)

    running = shown.job(0.0, 2)
    over = replace(running, remaining_epochs=1e-3, current=SUSPENDED, requested=SUSPENDED, max_workers=0)
    ran = Progress("short", "resnet", Allocation(2, 0), SLOT, 2 * SLOT, 2 * SLOT, 1.0)
    tape: list[Interval] = [
        (state(0, running), [ran]),
        (state(1, over), [Progress("short", "resnet", SUSPENDED, 0.0, 0.0, 0.0, 1e-3, finished=True)]),
        (state(2), []),
    ]
    live(tmp_path, tape, CandidateFactory(PolicySettings()).from_name_or_file("drf"))
    found = reported(capsys, str(tmp_path))
    assert found["jobs"] == 1
    assert found["recorded"]["avgJctSeconds"] == pytest.approx(SLOT)
    assert found["advised"]["policy"] == "drf", "who decided last"


@pytest.mark.heavy
def test_a_page_is_written_and_says_what_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(logged(tmp_path / "state", jobs()))
    code, out, err = typed(capsys, log, "--report", str(tmp_path / "page"))
    assert code == 0, err
    assert "as recorded" in out
    assert f"written: {tmp_path / 'page' / 'index.html'}" in out.replace("\n", "")
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "as recorded, they were done in" in page
    assert "FIFO with backfill" in page
    assert '<th scope="row" class="first">As recorded</th>' in page
    assert "What moves it most by itself is how long a resize stops them" in page
    assert (tmp_path / "page" / "report.png").stat().st_size > 0


def test_episodes_of_a_simulated_cluster_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart = reported(capsys, str(logged(tmp_path / "one", jobs(), slots=31)))
    many = logged(tmp_path / "many", jobs(), slots=31, episodes=5)
    found = reported(capsys, str(many))
    assert found["jobs"] == 15
    assert found["recorded"]["avgJctSeconds"] == pytest.approx(apart["recorded"]["avgJctSeconds"])
    assert found["requested"]["avgJctSeconds"] == pytest.approx(apart["requested"]["avgJctSeconds"], rel=0.05)
    assert not any("caution" in note for note in found["notes"])
    assert any(note.startswith("5 episodes of a simulated cluster") for note in found["notes"])


def test_where_no_simulation_is_near_the_record_there_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = [Ran("first", 0.0, 4, 12_000.0), *(Ran(f"tiny-{number}", 0.0, 1, 300.0) for number in range(8))]
    late = [replace(alone[0]), *(replace(job, submitted=300.0) for job in alone[1:])]
    found = reported(capsys, str(logged(tmp_path, late)))
    assert found["recorded"]["avgJctSeconds"] > 10_000
    assert not found["answer"].startswith("No answer"), "the queue explains it"
    idle = [Ran(f"slow-{number}", 0.0, 1, 300.0) for number in range(3)]
    found = reported(capsys, str(logged(tmp_path / "held", idle, held_slots=60)))
    assert found["answer"].startswith("No answer: these jobs were done in ")
    assert any("less than was recorded; something else than sizes made them wait" in note for note in found["notes"])


@pytest.mark.parametrize("columns", [60, 80])
def test_it_fits_a_narrow_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: int) -> None:
    found = reported(capsys, str(logged(tmp_path, jobs())), "--policy", "drf")
    console = Console(width=columns, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(report_table(found))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= columns
    assert any("simulated, under drf" in line and "%" in line for line in lines)
    assert " ".join("".join(f"{line} " for line in lines).split()).endswith(found["answer"]), "the answer comes last"


def test_a_report_that_is_watched_is_said_again_when_another_job_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, later = logged(tmp_path / "watched", jobs()[:2]), logged(tmp_path / "later", jobs())
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        assert seconds >= 10, "it replays days of jobs each time"
        looks += 1
        if looks == 2:
            shutil.rmtree(log)
            later.rename(log)
        elif looks == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("cluster_agent.jobs.client.time.sleep", pause)
    code, out, err = typed(capsys, str(log), "--watch", "-o", "json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["jobs"] for line in out.splitlines()] == [2, 3]


def test_what_cannot_be_reported_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "state", [Ran("long", 0.0, 1, 1e6)], slots=5)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    ended = logged(tmp_path / "ended", jobs())
    for words, line in [
        ((), "name one of the two"),
        ((str(log), "--config", "agent.yaml"), "name one of the two"),
        ((str(tmp_path / "none"),), "cannot be read"),
        ((str(tmp_path / "empty"),), "holds no decision"),
        ((str(tmp_path / "file"),), "no JSON"),
        ((str(log),), "no job has ended in the last 7 days"),
        ((str(ended), "--policy", "fibo"), "fifo"),
        ((str(ended), "--report", str(tmp_path / "file")), "cannot be written to"),
        (("--config", str(tmp_path / "none.yaml")), "none.yaml"),
        ((str(ended), "--watch", "--report", str(tmp_path / "page")), "--report and --watch do not go together"),
    ]:
        code, _, err = typed(capsys, *words)
        assert (code, err.count("\n")) == (2, 1), (words, err)
        assert line in err
