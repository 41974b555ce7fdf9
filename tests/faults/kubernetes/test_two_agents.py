"""Two agents of one cluster, of which the one that acts is held up past its Lease: there are never two writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from apiserver.asked import Asked
from apiserver.cluster import Cluster, Node, running_cluster
from apiserver.store import Change
from held_digits import EPOCHS, held_command
from training_cluster import install, status_of, submit
from training_objects import CRDS, spec, template

ROLES = Path(__file__).parents[3] / "deploy" / "kustomize"
AGENTS = ("one", "two")
_QUIET_SECONDS = 0.3

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def rules() -> list[dict[str, object]]:
    """All that an agent in training mode may do."""
    files = [ROLES / "base" / "advice-role.yaml"]
    files += [ROLES / "overlays" / name / f"{name}-role.yaml" for name in ("auto", "training")]
    found = []
    for path in files:
        for role in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            where = {"namespace": "fedl2"} if role["kind"] == "Role" else {}
            found += [{**rule, **where} for rule in role["rules"]]
    return found


@contextmanager
def agent(cluster: Cluster, name: str, folder: Path, key: Path) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    backend = {
        "kind": "kubernetes",
        "kubeconfig": str(cluster.grant(name, rules())),
        "slot_seconds": 1.0,
        "debounce_seconds": 0.1,
        "lease_namespace": "fedl2",
        "training": {"key_file": str(key)},
    }
    content = {"cluster": "east", "state_dir": "state", "backend": backend, "policy": {"initial": "set"}}
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", "cluster_agent.cli", "run", "--config", str(path)]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def holder(cluster: Cluster) -> str:
    """The agent that acts: the last of the two that has written the Lease."""
    leases = [
        asked.user for asked in list(cluster.server.asked) if asked.resource.startswith("leases") and asked.writes
    ]
    return leases[-1] if leases else ""


def deeds(cluster: Cluster) -> list[Asked]:
    """What agents wrote, but for their Lease."""
    return [
        asked
        for asked in list(cluster.server.asked)
        if asked.user in AGENTS and asked.writes and not asked.resource.startswith("leases")
    ]


def pods_made(cluster: Cluster) -> dict[str, set[str]]:
    """From now on: the uids of all pods that were ever made, by name."""
    made: dict[str, set[str]] = {}

    def note(change: Change) -> None:
        if change.plural == "pods" and change.before is None and change.after is not None:
            metadata = change.after["metadata"]
            made.setdefault(metadata["name"], set()).add(metadata["uid"])

    cluster.server.call(lambda: cluster.server.store.on_change.append(note))
    return made


def stop_between_writes(cluster: Cluster, name: str, process: subprocess.Popen[bytes]) -> None:
    """Stop an agent that has sent nothing that would still be carried out: what is on its way nobody can call back."""
    seen, since = len(deeds(cluster)), time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since
        now = len(deeds(cluster))
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > _QUIET_SECONDS

    cluster.wait(quiet, "a moment without a write", 120.0)
    os.kill(process.pid, signal.SIGSTOP)
    assert holder(cluster) == name, "it acts"


def test_an_agent_that_wakes_up_after_its_lease_writes_nothing_and_the_job_completes(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 40)
    with running_cluster([Node("a", cpu="4", gpus=0)], "processes") as cluster, ExitStack() as stack:
        cluster.make("namespaces", {"metadata": {"name": "fedl2"}, "status": {"phase": "Active"}})
        targets = ROLES.parent / "crds" / "elastictargets.yaml"
        cluster.make(CRDS, yaml.safe_load(targets.read_text(encoding="utf-8")))
        install(cluster)
        made = pods_made(cluster)
        processes = {name: stack.enter_context(agent(cluster, name, tmp_path / name, key)) for name in AGENTS}
        cluster.wait(lambda: holder(cluster), "an agent that acts")
        pod = template()
        pod["spec"]["containers"][0]["command"] = held_command(let_go := tmp_path / "let go")
        submit(cluster, spec(worker={"min": 1, "max": 2, "template": pod}))
        cluster.wait(lambda: status_of(cluster).get("phase") == "Running", "a job that trains", 240.0)
        first = holder(cluster)
        (second,) = set(AGENTS) - {first}
        stop_between_writes(cluster, first, processes[first])
        cluster.wait(lambda: holder(cluster) == second, "the other agent", 120.0)
        cluster.wait(lambda: second in {asked.user for asked in deeds(cluster)}, "what the other agent does", 240.0)
        os.kill(processes[first].pid, signal.SIGCONT)
        woken = time.monotonic()
        let_go.touch()
        found = cluster.wait_for_condition("trainingjobs.fedl2.io", "digits", "Complete", seconds=300.0)
        # It had time to do what it had been about to do.
        cluster.wait(lambda: time.monotonic() - woken > 10.0, "some seconds more")
        users = [asked.user for asked in deeds(cluster)]
        assert first not in users[users.index(second) :]
        assert found["status"]["progress"]["epoch"] == f"{EPOCHS}.00"
        assert "digits-coordinator" in made, made
        assert {name: len(uids) for name, uids in made.items()} == dict.fromkeys(made, 1), "no pod was made twice"
        assert processes[first].poll() is None, "it stands by"
