"""The command `cluster-agent simulate`: when a job would start and end if it were submitted now.

The project's own simulator runs the jobs that are there, and this one, under the policy that decides here: with the
speeds that the agent has measured, once for each of some seeds, which draw how far speeds and unknown work are off.
Deviation: what is drawn is an assumption (a fifth of the speed, a factor of two of work that nobody said), not a fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster_agent.errors import BadJobFile, JobRefused
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.options import Debug, Form, Output, Socket, show
from cluster_agent.jobs.submission import Cpu, Described, Epochs, ModelType, PsCpu, Servers, Workers, described
from foundation.figures import counted, duration

if TYPE_CHECKING:
    import random

    from policy_net.domain import Job
    from policy_net.laboratory.simulation.metrics import JobOutcome
    from policy_net.laboratory.workloads.workload import JobSpec

_RUNS = 15
_SPEED_DEVIATION = 0.2
_WORK_DEVIATION = math.log(2.0)
_NEW = "the-job-that-is-asked-about"
_GUESSED_EPOCHS = 1.0


def simulate(
    job: Described,
    model_type: ModelType = None,
    epochs: Epochs = None,
    workers: Workers = None,
    ps: Servers = None,
    cpu: Cpu = None,
    ps_cpu: PsCpu = None,
    socket: Socket = None,
    output: Output = Form.TABLE,
    debug: Debug = False,  # noqa: ARG001  (read by foundation.command_line)
) -> None:
    """Say when a job would start and end if it were submitted now, with an interval; nothing is submitted."""
    given = {"modelType": model_type, "work": None if epochs is None else {"epochs": epochs}}
    messages = described(job, given, {"worker": (workers, cpu), "ps": (ps, ps_cpu)})
    if len(messages) > 1:
        raise BadJobFile(f"there are {len(messages)} jobs; one at a time is foreseen")
    with JobClient(socket) as client:
        facts = client.call("simulate", messages[0])
    answer = foreseen(facts)
    show(output, answer, _sentences(answer))


def foreseen(facts: dict[str, Any]) -> dict[str, Any]:
    """Start and end in seconds from now, each as low (10%), median and high (90%).

    Args:
        facts: what the agent says of the job, of the jobs that are there, and where its decisions are.

    Raises:
        JobRefused: no decision was taken yet, so that nothing is known of the policy.
    """
    from cluster_agent.recording.last_decision import decided_state, last_decision  # noqa: PLC0415  (as the rest)

    folder = Path(facts["stateDir"])
    line = last_decision(folder)
    if line is None:
        raise JobRefused("no decision was taken here yet: there is nothing to foresee from; submit the job")
    state = decided_state(line)
    present = [job for job in state.jobs if job.job_id in set(facts["present"])]
    notes = []
    alike = next((job for job in state.jobs if job.job_type == facts["job"]["modelType"]), None)
    if not facts["known"] and alike is None:
        notes.append(f"nothing was measured of {facts['job']['modelType']} here yet: its speed is a guess")
    if facts["job"]["epochs"] is None:
        notes.append("the job does not say its work: one epoch is taken; say `work`, or --epochs")
    outcomes = [_run(facts, line, present, folder, seed) for seed in range(_RUNS)]
    return {
        "start": _spread([outcome.start_seconds or 0.0 for outcome in outcomes]),
        "end": _spread([outcome.end_seconds or 0.0 for outcome in outcomes]),
        "policy": line["policy"],
        "version": line["version"],
        "jobsPresent": len(present),
        "runs": _RUNS,
        "notes": notes,
    }


def _run(facts: dict[str, Any], line: dict[str, Any], present: list[Job], folder: Path, seed: int) -> JobOutcome:
    import random  # noqa: PLC0415

    from cluster_agent.recording.last_decision import policy_of  # noqa: PLC0415
    from cluster_agent.recording.memory import MEMORY  # noqa: PLC0415
    from cluster_agent.recording.state_files import read_json  # noqa: PLC0415
    from policy_net.domain import CapacityMode, PolicyContext  # noqa: PLC0415
    from policy_net.laboratory.simulation.environment import DecideOn, Environment  # noqa: PLC0415
    from policy_net.laboratory.simulation.replay import replay  # noqa: PLC0415
    from policy_net.laboratory.workloads.workload import Workload  # noqa: PLC0415
    from policy_net.policy import build_policy  # noqa: PLC0415
    from policy_net.throughput.parametric import OnlineFit  # noqa: PLC0415

    draw = random.Random(seed)
    speeds = OnlineFit()
    saved = read_json(folder / MEMORY)
    if saved is not None and saved.get("beliefs"):
        speeds.restore(saved["beliefs"])
    speeds.introduce(present)
    jobs = tuple(_present(job, draw) for job in present)
    environment = Environment(
        nodes=1,
        gpus_per_node=facts["gpus"],
        cpus_per_node=facts["cpuMilli"],  # a thousandth of a core is the unit here: a machine may have half a core
        slot_seconds=facts["slotSeconds"],
        decide_on=DecideOn.EVENT,
        debounce_seconds=facts["debounceSeconds"],
        capacity_mode=CapacityMode.POOLED,
        job_noise=_SPEED_DEVIATION,
        seed=seed,
    )
    policy = policy_of(folder, line) or build_policy(_name_of(line), PolicyContext())
    found = replay(Workload("now", (*jobs, _asked(facts)), (), suggested_nodes=1), environment, policy, speeds)
    return next(outcome for outcome in found.outcomes if outcome.job_id == _NEW)


def _name_of(line: dict[str, Any]) -> str:
    from policy_net.policy import DEFAULT_POLICY, policy_names  # noqa: PLC0415

    name = str(line["policy"])
    return name if name in policy_names() else DEFAULT_POLICY


def _present(job: Job, draw: random.Random) -> JobSpec:
    from policy_net.domain import Resources  # noqa: PLC0415
    from policy_net.laboratory.workloads.workload import JobSpec  # noqa: PLC0415

    left = job.remaining_epochs
    really = left if job.work_known else left * math.exp(draw.gauss(0.0, _WORK_DEVIATION))
    return JobSpec(
        job_id=job.job_id,
        job_type=job.job_type,
        submit_time_seconds=0.0,
        total_epochs=really,
        samples_per_epoch=job.samples_per_epoch,
        worker_demand=Resources(job.worker_demand.cpu_milli * 1000, job.worker_demand.gpu),
        ps_demand=Resources(job.ps_demand.cpu_milli * 1000, job.ps_demand.gpu),
        requested=job.requested,
        max_workers=job.max_workers,
        max_ps=job.max_ps,
        declared_epochs=left,
        kind=job.kind,
        min_workers=job.min_workers,
        min_ps=job.min_ps,
        work_known=job.work_known,
    )


def _asked(facts: dict[str, Any]) -> JobSpec:
    from policy_net.domain import Allocation, JobKind, Resources  # noqa: PLC0415
    from policy_net.laboratory.workloads.workload import JobSpec  # noqa: PLC0415

    job = facts["job"]
    spec = JobSpec(
        job_id=_NEW,
        job_type=job["modelType"],
        submit_time_seconds=0.0,
        total_epochs=job["epochs"] or _GUESSED_EPOCHS,
        samples_per_epoch=facts["samplesPerEpoch"],
        worker_demand=Resources(job["worker"][0] * 1000, job["worker"][1]),
        ps_demand=Resources(job["ps"][0] * 1000, job["ps"][1]),
        requested=Allocation(*job["requested"]),
        max_workers=job["max"][0],
        max_ps=job["max"][1],
        kind=JobKind(job["kind"]),
        min_workers=job["min"][0],
        min_ps=job["min"][1],
    )
    return replace(spec, work_known=job["epochs"] is not None)


def _spread(seconds: list[float]) -> dict[str, float]:
    from statistics import quantiles  # noqa: PLC0415

    tenths = quantiles(seconds, n=10, method="inclusive")
    return {"low": tenths[0], "median": tenths[4], "high": tenths[8]}


def _sentences(answer: dict[str, Any]) -> str:
    start, end = answer["start"], answer["end"]
    version = f" v{answer['version']}" if answer["version"] else ""
    there = counted(answer["jobsPresent"], "job")
    lines = [
        f"starts in {duration(start['median'])} ({duration(start['low'])} to {duration(start['high'])})",
        f"ends in {duration(end['median'])} ({duration(end['low'])} to {duration(end['high'])})",
        f"simulated {answer['runs']} times under {answer['policy']}{version}, beside {there};"
        " 8 of 10 runs lie within the bounds",
    ]
    return "\n".join([*lines, *answer["notes"]])
