"""A test cluster as a process of its own, for demonstrations and for trying things: real processes for pods.

    python tests/kube/run_cluster.py --administrator admin.kubeconfig --agent agent.kubeconfig --role deploy/…-role.yaml

It runs until it is told to end (SIGTERM, Ctrl-C); then no process of it is left.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import yaml  # noqa: E402 — the path first
from apiserver.cluster import Node, running_cluster  # noqa: E402

Json = dict[str, Any]
NAMESPACES = ("fedl2",)
"""Beside those that a cluster has: `default`, `kube-system`, `team`."""


def rules_of(paths: list[Path]) -> list[Json]:
    """The rules of all Roles and ClusterRoles in some files."""
    rules = []
    for path in paths:
        for found in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if found and found["kind"] in ("Role", "ClusterRole"):
                where = {"namespace": found["metadata"]["namespace"]} if found["kind"] == "Role" else {}
                rules += [{**rule, **where} for rule in found["rules"]]
    return rules


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="A cluster whose pods are processes of this machine.")
    parser.add_argument("--administrator", type=Path, required=True, help="gets the kubeconfig of who may do all")
    parser.add_argument("--agent", type=Path, required=True, help="gets that of who may do what the roles say")
    parser.add_argument("--role", type=Path, action="append", default=[], help="a file of Roles")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpu", default="2", help="of each node")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    nodes = [Node(f"node-{number + 1}", cpu=given.cpu, memory="8Gi", gpus=0) for number in range(given.nodes)]
    with running_cluster(nodes, "processes") as cluster:
        for namespace in NAMESPACES:
            cluster.make("namespaces", {"metadata": {"name": namespace}, "status": {"phase": "Active"}})
        given.administrator.write_bytes(cluster.kubeconfig.read_bytes())
        partial = given.agent.with_suffix(".partial")
        partial.write_bytes(cluster.grant("agent", rules_of(given.role)).read_bytes())
        partial.replace(given.agent)
        stop.wait()


if __name__ == "__main__":
    main()
