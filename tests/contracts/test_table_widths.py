"""Every table of every program at the widths of terminals; those of policyctl have a test of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import RenderableType
from table_suite import WIDTHS, Sample, check_table, printed

from benchmarks.policy_quality.tables import REAL_HEADINGS, TextTable
from cluster_agent.cli import report_table, result_sheet
from cluster_agent.jobs import cluster_explaining, commands
from cluster_agent.jobs.views import job_table as agent_job_table
from cluster_agent.jobs.views import jobs_table as agent_jobs_table
from cluster_agent.jobs.views import one_job
from cluster_agent.recording.log_replay import LogReplayResult
from deploy.local.report import times_table
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size, TaskStatus
from elastic_runtime.launcher.commands.job_tables import job_table, jobs_table
from elastic_runtime.launcher.job_status import status_record
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.tables import FittedTable
from policy_net.cli import policy_sheet
from policy_net.exchange.spec import SetSpec
from policy_net.laboratory.commands.answers import owner_table_on_terminal, replay_table
from policy_net.laboratory.commands.fit_speed import quality_table
from policy_net.laboratory.commands.reproduce import verdict_counts, verdicts_table
from policy_net.laboratory.commands.runs import runs_table
from policy_net.laboratory.commands.tune_result import best_table
from policy_net.laboratory.report.comparison import Recorded
from policy_net.laboratory.report.tables import TableRow
from policy_net.laboratory.report.tables import TextTable as OwnerTable
from policy_net.laboratory.speeds.measured_speeds import FitQuality
from policy_net.laboratory.training_runs import Curve, TrainingRun
from policy_net.laboratory.tuning.study_file import Trial, TrialReport

ROOT = Path(__file__).parents[2]
DIGEST = "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2
NAME = "gpu-cluster-of-the-northern-hall-17"
JOB = "resnet-50-of-the-vision-group-1234"
PATH = "/home/somebody/experiments/2026-09-21/vision/train.py"
NOW = 1_790_000_000.0


def agent_job() -> dict[str, Any]:
    part = {"min": 1, "max": 16, "cpu": 12.5, "gpu": 8}
    return {
        "name": JOB, "modelType": "inception-resnet-v2", "state": "suspended", "workers": 12, "ps": 14,
        "progress": 0.9876, "waitedSeconds": 123_456.0, "runSeconds": 234_567.0, "ageSeconds": 358_023.0,
        "note": "waits for 12 GPUs, of which 8 are there; 1234 jobs came before", "may": {"workers": part, "ps": part},
        "stallSeconds": 12.5, "kind": "ps", "samples": 1_234_567_890.0, "submittedUnixSeconds": NOW, "script": PATH,
        "args": ["--epochs", "90", "--batch", "4096"], "lastLine": "step 123456: loss 0.12345", "log": f"{PATH}.log",
        "measuredUnixSeconds": NOW, "lastLineUnixSeconds": NOW,
    }  # fmt: skip


DECISION = {
    "unixSeconds": NOW - 4000.0, "version": 1190, "policy": "set-taught", "workers": 12, "ps": 14, "number": 123_456,
    "trigger": "node-change", "guard": ["over-cap", "deadline"], "reasons": ["fallback:deadline after 512.5 ms"],
    "from": "log",
}  # fmt: skip


def explained() -> RenderableType:
    steps = [
        {"workers": 12 + taken, "ps": 14, "samplesPerSecond": 123_456.7, "timesAsFast": 12.34, "score": 0.012345,
         "rank": 1234 * taken, "taken": bool(taken)}
        for taken in (1, 0)
    ]  # fmt: skip
    others = [{"name": f"{JOB}-{number}", "workers": 12, "ps": 14, "score": 0.01234} for number in range(3)]
    facts = {**agent_job(), "waitsFor": "", "decision": DECISION, "steps": steps, "others": others}
    return commands.explained(facts, NOW)


def explained_on_kubernetes() -> RenderableType:
    step = {"score": 0.012345, "rank": 1234, "taken": False}
    gain = {"workers": 12, "ps": 14, "samplesPerSecond": 123_456.7, "timesAsFastAsNow": 12.34, "step": step}
    condition = {"type": "Recommending", "status": "False", "reason": "NoRoom", "message": "12 GPUs of 8 are asked for"}
    event = {
        "time": "2026-09-21T12:34:56Z",
        "of": "Job",
        "reason": "BackOff",
        "message": "restarted 12 times",
        "count": 12,
    }
    facts = {
        "name": f"team/{JOB}", "job": {"kind": "Job", "name": JOB}, "modelType": "vgg-16", "state": "running",
        "workers": 12, "ps": 14, "min": 1, "max": 16, "minPs": 1, "maxPs": 16, "updateMode": "Auto",
        "progress": {"samples": 1_234_567.0, "share": 0.123, "total": 9_876_543.0},
        "recommendation": {"workers": 12, "message": "more: 12 rather than 2", "time": "2026-09-21T12:34:56Z"},
        "allocation": {"workers": 12, "decisionId": "123456", "reason": "it gains", "time": "2026-09-21T12:34:56Z"},
        "conditions": [condition], "waitsFor": "", "decision": DECISION, "gains": [gain, {**gain, "workers": 13}],
        "speedsFrom": "what 1234 intervals have shown", "others": [{"name": JOB, "workers": 12}], "events": [event],
        "notes": ["you may not read pods in team-17"],
    }  # fmt: skip
    return cluster_explaining.explained(facts, NOW)


def reported() -> RenderableType:
    way = {"avgJctSeconds": 372_528.0}
    return report_table(
        {
            "recorded": way, "requested": way, "advised": {"avgJctSeconds": 298_022.4, "policy": "set-taught"},
            "jobs": 1234, "days": 7.0, "nodes": 120, "gpus": 960, "notes": ["12 jobs had no end"],
            "page": "page/index.html",
            "answer": "Under set-taught, jobs would have taken 20% less time (95% interval: 12% to 25%).",
        }
    )  # fmt: skip


def replayed() -> RenderableType:
    result = LogReplayResult(
        decisions=123_456, different=12, missing=3, unknown=4, cut_short=["decisions-17.jsonl, line 1234"],
        programs={"0.1.0", "0.2.0"}, policies={"set-taught": 123_000, "v1190": 456}, challenger_decisions=1234,
        challenger_different=1, challenger_unknown=2,
    )  # fmt: skip
    return result_sheet([Path("decisions-17.jsonl")], result)


def status(**changes: Any) -> dict[str, Any]:
    request = RequestState(
        "f1bd4180184a0123", "resize", RequestOutcome.ABORTED, target=Size(12, 16), began_unix_seconds=100.0,
        ended_unix_seconds=1234.5, stall_seconds=0.00031, detail="no room for 12 of 16 workers", clock=123_456,
        moved_bytes=344_000_000,
    )  # fmt: skip
    task = TaskStatus(
        "worker-12", TaskRole.WORKER, "member", step=123_456, samples_per_second=56_133.4, owned_bytes=344_000_000,
        bytes_sent=1_380_000_000, bytes_received=999_000_000, stall_seconds=0.08438, report_age_seconds=12.3,
    )  # fmt: skip
    found = JobStatus(
        JOB, JobPhase.RUNNING, size=Size(12, 16), target=Size(2, 1), tasks=(task, replace(task, task="ps-12")),
        requests=(request,), step=123_456, total_steps=628_000, durable_step=123_000, samples_per_second=56_133.4,
        failure="worker-12 ended with exit code 137", **changes,
    )  # fmt: skip
    return {**status_record(found), "launcher": None, "script": PATH, "folder": f"/home/somebody/jobs/{JOB}"}


def inspected() -> RenderableType:
    spec = SetSpec(prices=1)
    card = {"trained_on": {"clusters": 12, "learning_rate": 0.0625}, "score_over_drf": 0.9012, "made": "2026-09-21"}
    facts = {
        "file": PATH, "digest": DIGEST, "size_bytes": 1_234_567, "policy": "set", "spec_digest": DIGEST[::-1],
        "parameters": 12_345, "features": 28, "priors": 628, "spec": spec.model_dump(mode="json"), "card": card,
    }  # fmt: skip
    return policy_sheet(facts)


def replays() -> FittedTable:
    row = {
        "policy": "fifo-backfill", "jobs": 1000, "completed": 1000, "avg_wait_seconds": 126_108.0,
        "avg_jct_seconds": 183_348.0, "p99_jct_seconds": 961_704.0, "max_jct_seconds": 1_513_656.0,
        "makespan_seconds": 2_529_288.0, "gpu_utilization": 0.62, "gpu_hours": 31_467.2, "inference_p50_us": 242.1,
        "slot_decide_p99_ms": 36.4, "wall_seconds": 23.0,
    }  # fmt: skip
    return replay_table("week 38", [row] * 2, recorded=Recorded(1000, 1000, 3600.0, 7200.0, None), timing=True)


def owners() -> FittedTable:
    cells = ("31", "1,234", "3.1", "2.0", "3.1 ▲", "11.8", "12.5", "6% more", "61%")
    headings = (
        "User", "Jobs", "GPU-hours asked for", "Recorded wait [h]", "Wait, EASY backfill [h]",
        "Wait, fedl2 (set-taught) [h]", "Completion, EASY backfill [h]", "Completion, fedl2 (set-taught) [h]", "Change",
        "Done later",
    )  # fmt: skip
    return owner_table_on_terminal(
        "By user, 12 of 1234", OwnerTable(headings, (TableRow("anna", cells), TableRow("bo", cells)))
    )


def runs() -> FittedTable:
    curves = (Curve("reward: mean", ((100, 0.12345), (200, 0.23456))),)
    settings = {"actor_critic.learning_rate": 0.00012345, "replay_samples": 8192, "seed": 17}
    one = TrainingRun("run-of-the-21st-17", settings, {"avg_jct_seconds": 123_456.7, "steps": 100_000}, curves)
    other = TrainingRun("run-of-the-22nd-18", {**settings, "seed": 18, "replay_samples": 16_384}, {}, curves)
    return runs_table([one, other], Path("runs-17.html"))


def tuned() -> FittedTable:
    defaults = {"learning_rate": 0.0001, "hidden_neurons": 64}
    report = TrialReport(scores=(0.9012,), by_world=(1.0, 2.0))
    trials = [Trial(0, defaults, report), Trial(123, {**defaults, "learning_rate": 0.012345}, report)]
    return best_table(SimpleNamespace(space=SimpleNamespace(defaults=defaults)), SimpleNamespace(trials=trials))  # type: ignore[arg-type]


def demo_times() -> FittedTable:
    labels = {
        "recorded": "your own, as recorded", "fifo-easy": "FIFO with EASY backfill", "drf": "DRF", "optimus": "Optimus",
        "v1": "v1", "learned": "newest version",
    }  # fmt: skip
    times = {NAME: dict.fromkeys(labels, 372_528.0), "south": dict.fromkeys(list(labels)[1:], 123_456.0)}
    plan = [SimpleNamespace(name=name, nodes=120, jobs=1234) for name in times]
    replays = SimpleNamespace(labels=labels, jct_seconds=times)
    return times_table(SimpleNamespace(replays=replays, plan=plan))  # type: ignore[arg-type]


SAMPLES: dict[str, Sample] = {
    "benchmarks/policy_quality/tables.py:for_terminal": lambda: TextTable(
        "12 of 1234 clusters", REAL_HEADINGS, [("fifo-easy", *["0.913 (0.872–0.955)"] * (len(REAL_HEADINGS) - 1))]
    ).for_terminal(),
    "cluster_agent/jobs/cluster_explaining.py:explained": explained_on_kubernetes,
    "cluster_agent/jobs/commands.py:explained": explained,
    "cluster_agent/cli.py:report_table": reported,
    "cluster_agent/jobs/views.py:job_table": lambda: agent_job_table([agent_job(), {**agent_job(), "name": "a"}]),
    "cluster_agent/jobs/views.py:jobs_table": lambda: agent_jobs_table([agent_job()]),
    "cluster_agent/jobs/views.py:one_job": lambda: one_job(agent_job(), NOW + 400_000.0),
    "cluster_agent/cli.py:result_sheet": replayed,
    "deploy/local/report.py:times_table": demo_times,
    "elastic_runtime/launcher/commands/job_tables.py:job_table": lambda: job_table(status()),
    "elastic_runtime/launcher/commands/job_tables.py:jobs_table": lambda: jobs_table([status(), status()]),
    "policy_net/cli.py:policy_sheet": inspected,
    "policy_net/laboratory/commands/fit_speed.py:quality_table": lambda: quality_table(
        "/data/measured-17.csv", [FitQuality("inception-bn", 256, 12, "surface", 0.0123, 0.2345, 0.0456, 16, 11)] * 2
    ),
    "policy_net/laboratory/commands/answers.py:owner_table_on_terminal": owners,
    "policy_net/laboratory/commands/answers.py:replay_table": replays,
    "policy_net/laboratory/commands/reproduce.py:verdicts_table": lambda: verdicts_table(
        [{"figure": "fig19a", **verdict_counts(["opposite direction"] * 118 + ["no difference shown", "other"])}] * 2,
        "results-17/summary.md",
    ),
    "policy_net/laboratory/commands/runs.py:runs_table": runs,
    "policy_net/laboratory/commands/tune_result.py:best_table": tuned,
}
"""File and function to what it makes."""
ELSEWHERE = ("global_learner/policyctl/",)
"""Looked at by a test of their own."""
KINDS = {"FittedTable", "FactSheet", "Group"}


def sources() -> Iterator[tuple[str, str]]:
    """Every module of the project, by its path, without generated ones."""
    for package in ("benchmarks", "cluster_agent", "deploy", "elastic_runtime", "global_learner", "policy_net"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "generated" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def makes_table(function: ast.FunctionDef) -> bool:
    named = (
        {node.id for node in ast.walk(function.returns) if isinstance(node, ast.Name)} if function.returns else set()
    )
    return bool(named & KINDS) and not function.name.startswith("_")


def test_every_table_of_every_program_is_looked_at_and_there_is_one_style() -> None:
    found = set()
    for name, source in sources():
        assert "rich.table" not in source, f"{name} has a table of another style"
        if name.startswith(ELSEWHERE) or not any(kind in source for kind in ("FittedTable", "FactSheet")):
            continue
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        found |= {f"{name}:{function.name}" for function in functions if makes_table(function)}
    assert found == set(SAMPLES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_table_fits_with_every_figure_whole(sample: Sample, width: int) -> None:
    check_table(sample, width)


def test_what_tells_most_is_there_in_the_narrowest_terminal() -> None:
    for name, words in {
        "cluster_agent/jobs/views.py:job_table": ("suspended", "1234", "waits for 12 GPUs"),
        "elastic_runtime/launcher/commands/job_tables.py:job_table": ("worker-12", "123456", "f1bd4180", "aborted"),
        "elastic_runtime/launcher/commands/job_tables.py:jobs_table": ("running", PATH),
        "deploy/local/report.py:times_table": ("103.48", "34.29", "1.00"),
        "policy_net/laboratory/commands/runs.py:runs_table": (
            "run-of-the-21st-17",
            "replay samples 8192",
            "not ended",
        ),
    }.items():
        flowing = " ".join(printed(SAMPLES[name](), 60).split())
        assert [word for word in words if word not in flowing] == [], f"{name}\n{printed(SAMPLES[name](), 60)}"
