"""One fleet of two simulated clusters and this machine: real processes, real jobs, the usual commands."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_SECONDS, Fleet, made_again, wait_until

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient
from global_learner.beliefs.belief_store import BeliefStore
from global_learner.section_settings import BeliefSettings
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.policy_file import read_policy_file
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import DEFAULT_SET_FILE

pytestmark = pytest.mark.long

FASTEST_SAMPLES_PER_SECOND = 32 / 0.02
"""A step of 32 samples sleeps so long, however many workers share it."""
MACHINE, SIMULATED = "machine", ("north", "south")
SCRIPT = """
import sys, time, torch
import elastic_runtime as elastic

torch.manual_seed(0)
data, wanted = torch.randn(640, 32), torch.randint(0, 2, (640,))
model = torch.nn.Linear(32, 2)
job = elastic.join(model, elastic.SGD(lr=0.05), (data, wanted), global_batch=32, epochs=int(sys.argv[1]), seed=0)
for batch in job:
    inputs, labels = batch.data
    time.sleep(0.02)
    job.step(torch.nn.functional.cross_entropy(model(inputs), labels))
"""


class MixedFleet(Fleet):
    """A learner of the shipped policy, simulated clusters, and an agent over this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shutil.copy(DEFAULT_SET_FILE, self.policy)
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        self.socket = folder / "s" / "jobs.sock"

    def start_all(self) -> None:
        # A cluster that is slow for a while is not what this is about.
        patient = {"max_staleness_steps": 100_000}
        publish = {"every_steps": 4, "auto_assign": True}
        self.start_learner(publish=publish, ingest=patient, optimizer={"units": "weights"})
        for seed, name in enumerate(SIMULATED):
            workload = {"source": f"dl2:jobs=20,arrivals=google,sizes=varied,seed={seed}"}
            pace = {"kind": "scaled", "speedup": 1200.0 / 0.3}
            backend = {"workloads": [workload], "episodes": 1000, "environment": {"nodes": 8}, "pace": pace}
            self.start_agent(name, **self._learning(), backend=backend | {"baseline": False})
        self.start_agent(MACHINE, **self._learning(), sharing={"every_seconds": 0.5}, backend=self._this_machine())
        wait_until(self._answers, "the agent of this machine answers")

    def command(self, *words: str) -> Any:
        """One of the machine's commands."""
        done = subprocess.run(
            [sys.executable, "-m", "cluster_agent.cli", *words, "-o", "json"],
            cwd=self.folder,
            env=os.environ | {"CLUSTER_AGENT_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def submit(self, name: str, model_type: str, epochs: int) -> None:
        file = self.folder / f"{name}.json"
        job = {"modelType": model_type, "script": "train.py", "args": [str(epochs)], "work": {"epochs": epochs}}
        sizes = {"worker": {"max": 2, "cpu": "500m"}, "ps": {"max": 1, "cpu": "250m"}}
        file.write_text(json.dumps(job | sizes), encoding="utf-8")
        assert self.command("submit", file.name, "--name", name)["state"] == "queued"

    def job(self, name: str) -> dict[str, Any]:
        facts: dict[str, Any] = JobClient(self.socket, PATIENCE_SECONDS).call("jobs", {"name": name})["jobs"][0]
        return facts

    def reported(self) -> dict[str, tuple[SpeedStatistic, ...]]:
        """What each cluster has told the learner of speeds."""
        book = BeliefStore(self.folder / "learner", BeliefSettings())
        try:
            return book.reports(lambda cluster, at: True)
        finally:
            book.close()

    def end_jobs(self) -> None:
        if not self._answers():
            return
        client = JobClient(self.socket, PATIENCE_SECONDS)
        for facts in client.call("jobs", {})["jobs"]:
            if not facts["ended"]:
                client.call("cancel", {"name": facts["name"]})
        wait_until(lambda: all(facts["ended"] for facts in client.call("jobs", {})["jobs"]), "no job is left")

    def _learning(self) -> dict[str, Any]:
        residual = {"segment_decisions": 4, "minimum_effective_samples": 2}
        return self.learning() | {"learning": {"source": "live", "residual": residual}}

    def _this_machine(self) -> dict[str, Any]:
        backend = {"kind": "local", "cpu_milli": 2500, "slot_seconds": 2.0, "debounce_seconds": 0.5}
        return backend | {"start_seconds": 300.0, "resize_seconds": 300.0, "socket": str(self.socket)}

    def _answers(self) -> bool:
        try:
            JobClient(self.socket, PATIENCE_SECONDS).call("jobs", {})
        except AgentError:
            return False
        return True


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[MixedFleet]:
    fleet = MixedFleet(tmp_path)
    yield fleet
    fleet.end_jobs()
    fleet.close()


def test_a_real_machine_learns_with_simulated_clusters_acts_on_what_is_assigned_and_needs_no_learner_to_go_on(
    fleet: MixedFleet,
) -> None:
    fleet.start_all()
    learner = fleet.programs[0]
    fleet.submit("first", "mlp-small", 2000)
    fleet.submit("second", "mlp-large", 2000)
    watch = fleet.watch()
    try:
        # Its gradients are taken like the others'.
        def accepted() -> bool:
            counts = {view.cluster: view.updates_accepted for view in watch.fleet().clusters}
            return all(counts.get(name, 0) >= 2 for name in (MACHINE, *SIMULATED))

        wait_until(accepted, "updates of all three are taken", 2 * PATIENCE_SECONDS)
        # What is published of them acts here.
        wait_until(lambda: any(line["version"] > 1 for line in fleet.decisions(MACHINE)), "a new version acts")
        # Its speeds are told, by its own types, and as they were measured.
        wait_until(
            lambda: {entry.job_type for entry in fleet.reported().get(MACHINE, ())} >= {"mlp-small", "mlp-large"},
            "its speeds are told",
        )
        # It stands among the others.
        shown = watch.now()
        assert shown is not None
        views = {view.cluster: view.status for view in shown.clusters}
        assert set(views) == {MACHINE, *SIMULATED}
        assert (views[MACHINE].jobs_total, views[MACHINE].jobs_running + views[MACHINE].jobs_waiting) == (2, 2)
        assert views[MACHINE].decisions > 0
    finally:
        watch.close()
    samples = {name: fleet.job(name)["samples"] for name in ("first", "second")}
    assert all(0 < count <= 2000 * 640 for count in samples.values()), "counted by coordinators"
    # Without a learner it decides on: another job comes, and trains, and ends.
    learner.kill()
    before = len(fleet.decisions(MACHINE))
    fleet.submit("third", "mlp-small", 5)
    wait_until(lambda: fleet.job("third")["state"] == "done", "a job that came without a learner ends")
    assert len(fleet.decisions(MACHINE)) > before
    fleet.end_jobs()
    trained = {name: fleet.job(name)["samples"] for name in ("first", "second", "third")}
    machine = fleet.programs[-1]
    assert machine.stop() == 0, machine.output.read_text()[-2000:]

    counts = audit(read_receipts(fleet.folder / "learner", read_policy_file(DEFAULT_SET_FILE).spec.digest))
    assert {cluster for cluster, _ in counts} == {MACHINE, *SIMULATED}
    summary = fleet.summary(MACHINE)
    assert (summary["jobs"], summary["completed"]) == (3, 1)
    assert summary["updates"]["acknowledged"] >= 2
    assert summary["updates"]["rejected"] == {}
    # What is learned from is what coordinators counted, and what they counted is what was trained.
    observed = [row for line in fleet.decisions(MACHINE) for row in line.get("observed") or []]
    for name, samples in trained.items():
        assert 0 < sum(row[5] for row in observed if row[0] == name) <= samples
    for entry in fleet.reported()[MACHINE]:
        assert math.exp(entry.mean_log_speed) <= 2 * FASTEST_SAMPLES_PER_SECOND, "no such script is as fast"
    again = made_again(fleet.folder / MACHINE)
    assert (again["different"], again["missing"]) == (0, 0)
    assert again["decisions"] == len([line for line in fleet.decisions(MACHINE) if "state" in line])
    log = f"decisions:{fleet.folder / MACHINE}"
    words = ["--workload", log, "--speeds", log, "--policy", "drf", "--nodes", "1", "--cpus-per-node", "3"]
    replayed = subprocess.run(
        [sys.executable, "-m", "policy_net.cli", "replay", *words, "--gpus-per-node", "0", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stderr
    (row,) = json.loads(replayed.stdout)
    assert row["completed"] == row["jobs"] >= 1
