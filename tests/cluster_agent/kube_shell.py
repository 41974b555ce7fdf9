"""Somebody's terminal beside a cluster on the test API server: what is typed, and what is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kube_cluster import KubeCluster

DEADLINE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The one line that an error is."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


class KubeShell:
    """A terminal in a folder with a kubeconfig, `kubeconfig.yaml`, of a user whose token is their name."""

    def __init__(self, cluster: KubeCluster, folder: Path, user: str = "root") -> None:
        self.cluster, self.folder = cluster, folder
        self.kubeconfig(cluster.server.address, user)

    def kubeconfig(self, address: str, user: str = "root") -> None:
        content = {
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": user}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (self.folder / "kubeconfig.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")

    def config(self, policy: str = "set", **backend: Any) -> Path:
        """An agent's configuration, whose state is in `state`."""
        content = {
            "cluster": "gpu-east",
            "state_dir": "state",
            "backend": {
                "kind": "kubernetes",
                "kubeconfig": "kubeconfig.yaml",
                "slot_seconds": 1.0,
                "debounce_seconds": 0.1,
                **backend,
            },
            "policy": {"initial": policy},
        }
        path = self.folder / "agent.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    def type(self, *words: str, columns: int = 0, usual: bool = True) -> Said:
        """Run `cluster-agent`; with the kubeconfig as $KUBECONFIG unless told otherwise."""
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        environment["HOME"] = str(self.folder)
        if usual:
            environment["KUBECONFIG"] = str(self.folder / "kubeconfig.yaml")
        if columns:
            environment["COLUMNS"] = str(columns)
        done = subprocess.run(
            [sys.executable, "-m", "cluster_agent.cli", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=DEADLINE_SECONDS,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def file(self, name: str, *documents: Any) -> str:
        (self.folder / name).write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return str(self.folder / name)
