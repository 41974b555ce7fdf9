"""The demonstration's cluster, and kubectl: the test API server in a process of its own, asked as any other is."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.demonstration.frame import Demonstration
from deploy.demonstration.processes import DemoFailed
from deploy.kube.jobs import NAMESPACE, Json
from policy_net.errors import BadInput

CHECKOUT = Path(__file__).parents[2]
DEFINITIONS = [CHECKOUT / "deploy" / "crds" / name for name in ("elastictargets.yaml", "trainingjobs.yaml")]
_ROLES = [CHECKOUT / "deploy" / "kustomize" / "base" / "advice-role.yaml"]
_ROLES += [CHECKOUT / "deploy" / "kustomize" / "overlays" / name / f"{name}-role.yaml" for name in ("auto", "training")]
_PROGRAM = CHECKOUT / "tests" / "kube" / "run_cluster.py"
_CALL_SECONDS = 600.0
"""Of one call, which takes a fraction of a second of the processor; only one that hangs is ended."""


class Kubectl:
    """The program, in the demonstration's namespace of one cluster.

    Raises:
        BadInput: it is not there.
    """

    def __init__(self, kubeconfig: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise BadInput(
                "there is no kubectl on the PATH: install it (Debian: kubernetes-client), then run this again"
            )
        self._command = [program, "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE]

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

    def objects(self, kind: str) -> list[Json]:
        """All objects of a kind."""
        items: list[Json] = json.loads(self("get", kind, "-o", "json"))["items"]
        return items


def start_cluster(demo: Demonstration) -> tuple[Path, Path]:
    """Start a cluster; the kubeconfigs of its administrator and of the agent, which may do what its roles say.

    Raises:
        DemoFailed: it did not come up.
        BadInput: this is no checkout, where the test cluster is.
    """
    if not _PROGRAM.is_file():
        raise BadInput(f"{_PROGRAM} is missing: this demonstration runs in a checkout of the project")
    administrator, agent = demo.folder / "administrator.kubeconfig", demo.folder / "agent.kubeconfig"
    for path in (administrator, agent):
        path.unlink(missing_ok=True)  # of an earlier run
    arguments = ["--administrator", str(administrator), "--agent", str(agent), "--nodes=2"]
    demo.processes.start("cluster", str(_PROGRAM), [*arguments, *(f"--role={role}" for role in _ROLES)])
    demo.wait_until(agent.exists, "cluster")
    return administrator, agent
