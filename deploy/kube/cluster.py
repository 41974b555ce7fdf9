"""The demonstration's cluster, and kubectl: the test API server in a process of its own, asked as any other is."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.local.processes import DemoFailed, Processes
from deploy.local.waiting import ProgressDeadline
from policy_net.errors import BadInput

Json = dict[str, Any]

CHECKOUT = Path(__file__).parents[2]
_PROGRAM = CHECKOUT / "tests" / "kube" / "run_cluster.py"
_READY_SECONDS = 60.0
"""How long what starts may get nothing done, not a second of the processor."""
_CALL_SECONDS = 600.0
"""Of one call, which takes a fraction of a second of the processor; only one that hangs is ended."""
_LOOK_SECONDS = 0.1


class Kubectl:
    """The program, against one cluster.

    Raises:
        BadInput: it is not there.
    """

    def __init__(self, kubeconfig: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise BadInput(
                "there is no kubectl on the PATH: install it (Debian: kubernetes-client), then run this again"
            )
        self._command = [program, "--kubeconfig", str(kubeconfig)]

    def __call__(self, *arguments: str, content: str | None = None) -> str:
        """Run it; what it prints.

        Raises:
            DemoFailed: it failed.
        """
        try:
            result = subprocess.run(  # noqa: S603 — our own arguments
                [*self._command, *arguments],
                input=content,
                capture_output=True,
                text=True,
                timeout=_CALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            asked = " ".join(arguments[:4])
            raise DemoFailed(f"kubectl {asked}: no answer in {_CALL_SECONDS:g} s") from error
        if result.returncode:
            said = result.stderr.strip().splitlines() or ["it said nothing"]
            raise DemoFailed(f"kubectl {' '.join(arguments[:4])}: {said[-1]}")
        return result.stdout

    def apply(self, objects: Sequence[Json]) -> None:
        """Apply objects."""
        self("apply", "-f", "-", content="\n".join(map(json.dumps, objects)))

    def objects(self, kind: str, *more: str) -> list[Json]:
        """All objects of a kind in the demonstration's namespace."""
        items: list[Json] = json.loads(self("get", kind, "-o", "json", *more))["items"]
        return items

    def watch(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Have it run on, into a file; to be ended."""
        with log.open("wb") as file:
            return subprocess.Popen(  # noqa: S603 — our own arguments
                [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )


def start_cluster(folder: Path, processes: Processes, roles: Sequence[Path], nodes: int) -> tuple[Path, Path]:
    """Start a cluster; the kubeconfigs of its administrator and of the agent, which may do what its roles say.

    Raises:
        DemoFailed: it did not come up.
        BadInput: this is no checkout, where the test cluster is.
    """
    if not _PROGRAM.is_file():
        raise BadInput(f"{_PROGRAM} is missing: this demonstration runs in a checkout of the project")
    administrator, agent = folder / "administrator.kubeconfig", folder / "agent.kubeconfig"
    for path in (administrator, agent):
        path.unlink(missing_ok=True)  # of an earlier run
    arguments = ["--administrator", str(administrator), "--agent", str(agent), f"--nodes={nodes}"]
    processes.start_script("cluster", _PROGRAM, [*arguments, *(f"--role={role}" for role in roles)])
    deadline = ProgressDeadline(_READY_SECONDS)
    while not agent.exists():
        processes.check()
        if deadline.passed(int(processes.cpu_seconds())):
            waited = f"{deadline.waited_seconds:.0f} s"
            raise DemoFailed(f"the test cluster did not come up in {waited} (see {processes.log_of('cluster')})")
        time.sleep(_LOOK_SECONDS)
    return administrator, agent
