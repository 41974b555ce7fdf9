"""Somebody's terminal beside a cluster on the test API server: what is typed, and what is read.

Commands are forks of a process that has imported what they need, where there are forks: a start takes a second of
processor time. Tests of which the start is a part ask for it.
"""

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
from learner_process import FORKS, ForkedProgram

DEADLINE_SECONDS = 120.0
_IMPORTS = ("cluster_agent.jobs.cluster_explaining", "cluster_agent.jobs.cluster_forecast")


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

    def type(self, *words: str, columns: int = 0, usual: bool = True, forked: bool = True) -> Said:
        """Run `cluster-agent`; with the kubeconfig as $KUBECONFIG unless told otherwise."""
        out, err = (self.folder / f"typed.{name}" for name in ("out", "err"))
        for path in (out, err):
            path.unlink(missing_ok=True)
        code = self.start(*words, log=out, errors=err, columns=columns, usual=usual, forked=forked).wait(
            DEADLINE_SECONDS
        )
        return Said(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    def start(
        self,
        *words: str,
        log: Path,
        errors: Path | None = None,
        columns: int = 0,
        usual: bool = True,
        forked: bool = True,
    ) -> ForkedProgram | subprocess.Popen[bytes]:
        """Begin a command that goes on; what it says is added to a log."""
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        environment["HOME"] = str(self.folder)
        if usual:
            environment["KUBECONFIG"] = str(self.folder / "kubeconfig.yaml")
        if columns:
            environment["COLUMNS"] = str(columns)
        if forked and FORKS:
            return ForkedProgram(
                "cluster_agent.cli", words, log, errors=errors, environment=environment, imports=_IMPORTS
            )
        with log.open("ab") as out, (errors or log).open("ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "cluster_agent.cli", *words], stdout=out, stderr=err, env=environment
            )

    def file(self, name: str, *documents: Any) -> str:
        (self.folder / name).write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return str(self.folder / name)
