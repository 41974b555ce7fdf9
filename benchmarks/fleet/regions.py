"""Measurement of a tree: a root, regions below it, clusters below these; one region is killed amid it and comes back.

Every cluster says as many samples with every update, so that samples count updates through two levels: what clusters
were told is compared with each region's log, and that with the root's.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleet.counting import Counted, count_in
from benchmarks.fleet.load import SAMPLES, Done, Pace
from benchmarks.fleet.load_processes import LoadProcesses, load_processes
from benchmarks.fleet.memory import Watch
from benchmarks.processes import percentile
from benchmarks.push.policies import policy
from benchmarks.push.servers import CALL_SECONDS, START_SECONDS, Server, enroll, metrics, start_learner
from deploy.demonstration.processes import Processes
from global_learner.policyctl.client import AdminClient, TlsFiles
from global_learner.storage.receipts import Receipt, read_receipts
from policy_net.exchange.enrolled_identity import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile

OnStep = Callable[[str], None]
_WAITING = "fedl2_learner_above_waiting_updates"
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What is measured.

    Attributes:
        clusters: in all, dealt over the regions.
        push_seconds: from one push of a region to its next.
        kill: whether one region is killed halfway and started again.
    """

    regions: int
    clusters: int
    pace: Pace
    push_seconds: float
    kill: bool = True


def measure_tree(folder: Path, plan: TreePlan, on_step: OnStep) -> dict[str, Any]:
    """All figures, as the command prints them.

    Raises:
        TimeoutError: what was gathered did not reach the root.
    """
    first = policy()
    names = [f"region{number}" for number in range(plan.regions)]
    with Processes(folder) as processes, ExitStack() as stack:
        on_step("starting the root")
        root = start_learner(processes, folder, "root", first, (), identity={"enroll_port": 0})
        on_step(f"starting {plan.regions} regions, enrolling {plan.clusters} clusters")
        regions = [_start_region(processes, folder, name, first, root, plan.push_seconds) for name in names]
        loads: list[LoadProcesses] = []
        for number, region in enumerate(regions):
            clusters = [f"cluster{each:04d}" for each in range(plan.clusters) if each % plan.regions == number]
            identities = enroll(folder / region.name, region.address, clusters, at_once=4)
            load = stack.enter_context(load_processes(first.spec.to_json(), 1))
            load.open(region.address, identities)
            loads.append(load)
        on_step(f"{plan.clusters} clusters, {plan.pace.seconds:.0f} s")
        load_before = os.getloadavg()
        with Watch(root.pid) as at_root, Watch(regions[-1].pid) as at_region:
            killing = threading.Timer(plan.pace.seconds / 2.0, _kill_and_start, (processes, folder, names[0]))
            if plan.kill:
                killing.start()
            with ThreadPoolExecutor(plan.regions) as pool:
                done = list(pool.map(lambda load: load.run(plan.pace), loads))
            if plan.kill:
                killing.join()
        processes.check()
        on_step("waiting for the regions' last pushes")
        began = time.perf_counter()
        reported = _emptied(processes, folder, regions, plan.push_seconds)
        emptied_seconds = time.perf_counter() - began
        for name in ("root", *names):
            processes.kill(name)
        on_step("counting what the logs hold")
        return {
            **_counted(root, regions, done, first),
            "pushes_duplicate": sum(
                one.get('fedl2_learner_above_pushes_total{outcome="duplicate"}', 0.0) for one in reported
            ),
            "updates_lost_above": sum(
                one.get('fedl2_learner_above_updates_total{outcome="lost"}', 0.0) for one in reported
            ),
            "p99_ms": percentile([ms for one in done for ms in one.push_ms], 0.99),
            "failed_calls": sum(sum(one.failures.values()) for one in done),
            "root_cpu_share": _cpu_share(at_root),
            "region_cpu_share": _cpu_share(at_region),
            "regions": plan.regions,
            "clusters": plan.clusters,
            "seconds": plan.pace.seconds,
            "push_seconds": plan.push_seconds,
            "killed_regions": int(plan.kill),
            "emptied_seconds": round(emptied_seconds, 1),
            "load_average": [round(load_before[0], 2), round(os.getloadavg()[0], 2)],
            "processors": os.cpu_count(),
        }


def _start_region(
    processes: Processes, folder: Path, name: str, first: PolicyFile, root: Server, push_seconds: float
) -> Server:
    """A region that is enrolled with the root, on a port that it keeps when it is started again."""
    admin = AdminClient(root.address, TlsFiles(certificate=root.state_dir / "identity" / "admin.pem"), CALL_SECONDS)
    reply = admin.ask(fleet_pb2.EnrollClusterRequest(cluster=name))
    admin.close()
    token = folder / f"{name}.enrollment"
    authority = reply.authority.decode()
    EnrollmentFile(name, reply.token, reply.enroll_port, reply.expires_unix_seconds, authority).write(token)
    upstream = {
        "address": root.address,
        "name": name,
        "enrollment_file": str(token),
        "push_seconds": push_seconds,
    }
    listen = f"127.0.0.1:{processes.port()}"
    return start_learner(
        processes, folder, name, first, (), identity={"enroll_port": 0}, upstream=upstream, listen=listen
    )


def _kill_and_start(processes: Processes, folder: Path, name: str) -> None:
    processes.kill(name)
    (folder / name / "ports.json").unlink()
    processes.start(
        name,
        "benchmarks.with_constants",
        ["global_learner.cli", "serve", "--config", str(folder / name / "learner.yaml")],
    )


def _emptied(
    processes: Processes, folder: Path, regions: Sequence[Server], push_seconds: float
) -> list[Mapping[str, float]]:
    """The regions' metrics once nothing waits in any of them.

    Raises:
        TimeoutError: it takes too long.
    """
    deadline = time.perf_counter() + START_SECONDS + 5.0 * push_seconds
    while True:
        processes.check()
        reported = [_metrics_of(folder, region) for region in regions]
        if all(one.get(_WAITING) == 0.0 and one.get("fedl2_learner_above_open_pushes") == 0.0 for one in reported):
            return reported
        if time.perf_counter() > deadline:
            raise TimeoutError(f"updates wait in the regions still: {[one.get(_WAITING) for one in reported]}")
        time.sleep(_POLL_SECONDS)


def _metrics_of(folder: Path, region: Server) -> Mapping[str, float]:
    """What a region says of itself; one that was started again does so at another port."""
    ports = folder / region.name / "ports.json"
    if not ports.exists():
        return {}
    port = json.loads(ports.read_text())["http_port"]
    return metrics(Server(region.name, region.address, region.pid, {}, region.state_dir, port))


def _counted(root: Server, regions: Sequence[Server], done: Sequence[Done], first: PolicyFile) -> dict[str, Any]:
    """Clusters' word beside the regions' logs, and these beside the root's."""
    digest = first.spec.digest
    logs = [count_in(region.state_dir, digest, one.acknowledged) for region, one in zip(regions, done, strict=True)]
    at_root = [receipt for receipt in read_receipts(root.state_dir, digest) if receipt.kind == "update"]
    acknowledged = sum(len(numbers) for one in done for _, numbers in one.acknowledged.values())
    return {
        **_sums(logs),
        "acknowledged": acknowledged,
        "samples_acknowledged": SAMPLES * acknowledged,
        "samples_at_root": sum(receipt.samples for receipt in at_root),
        "pushes_at_root": len(at_root),
        "pushes_twice": len(at_root) - len({_name(receipt) for receipt in at_root}),
        "staleness_p99_steps": percentile([float(receipt.staleness) for receipt in at_root], 0.99),
        "refused": sum(sum(one.refused.values()) for one in done),
    }


def _sums(logs: Sequence[Counted]) -> dict[str, int]:
    return {name: sum(getattr(log, name) for log in logs) for name in ("lost", "twice", "unasked", "gaps")}


def _name(receipt: Receipt) -> tuple[str, int, int]:
    return receipt.cluster, receipt.incarnation, receipt.sequence


def _cpu_share(watch: Watch) -> float:
    first, last = watch.samples[0], watch.samples[-1]
    return round((last.cpu_seconds - first.cpu_seconds) / (last.seconds - first.seconds), 3)
