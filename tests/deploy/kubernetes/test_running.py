"""Programs as in their pods: with their image's packages, the chart's settings, and a root that nobody writes to."""

import contextlib
import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.rbac import allowed_by
from bare_site import bare_python, make_site
from kube_cluster import kube_cluster
from postgres_server import shared_server
from rendered import LEARNER, SHARING, by_helm, pod_spec, rules, settings_text
from reserved_port import ReservedPort

pytestmark = pytest.mark.heavy
DEADLINE_SECONDS = 120.0
TEMPORARY = "/tmp"  # noqa: S108 — a mount of the pods
NOTING = """
import os, runpy, sys, threading
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
opens, opened = os.open, threading.local()
def open_below(path, flags, mode=0o777, *, dir_fd=None):
    opened.below = dir_fd  # which the event does not say
    try:
        return opens(path, flags, mode, dir_fd=dir_fd)
    finally:
        opened.below = None
os.open = open_below
def note(event, arguments):
    path, below = None, None
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & writing:
        path, below = arguments[0], getattr(opened, "below", None)
    elif event in ("os.mkdir", "os.rename"):
        path, below = arguments[0], arguments[2]
    elif event == "os.symlink":
        path, below = arguments[1:3]  # the first is what the link says
    if isinstance(path, (str, bytes)):
        folder = os.readlink(f"/proc/self/fd/{below}") if isinstance(below, int) and below >= 0 else os.getcwd()
        os.write(2, b"wrote " + os.fsencode(os.path.abspath(os.path.join(folder, os.fsdecode(path)))) + b"\\n")
sys.addaudithook(note)
module = sys.argv.pop(1)
sys.argv[0] = module
runpy.run_module(module, run_name="__main__")
"""
"""Runs a module and tells every file that it writes to, or makes."""


@contextmanager
def running(site: Path, folder: Path, module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program, ended in good order, which has written to its mounts alone: the state, and /tmp."""
    command, environment = bare_python(site, "-c", NOTING, module, *words)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment | {"HOME": TEMPORARY},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    except AssertionError as error:
        error.add_note(log.read_text(encoding="utf-8"))
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_SECONDS)
    said = log.read_text(encoding="utf-8")
    assert process.returncode == 0, said
    wrote = re.findall(r"^wrote (.+)$", said, re.MULTILINE)
    state = folder / "state"  # which may be a link to a volume
    mounts = (f"{state}/", f"{state.resolve()}/", str(Path(TEMPORARY) / "tmp"), "/dev/")
    assert any(path.startswith(mounts[:2]) for path in wrote)
    assert {path for path in wrote if not f"{path}/".startswith(mounts)} == set()


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def configured(folder: Path, name: str, text: str, **changes: dict[str, Any] | str) -> Path:
    """The chart's settings with paths and ports of this machine."""
    stated = yaml.safe_load(text)
    for section, change in changes.items():
        stated[section] = stated[section] | change if isinstance(change, dict) else change
    path = folder / name
    path.write_text(yaml.safe_dump(stated), encoding="utf-8")
    return path


WRITES = {
    "advice": {
        ("patch", "elastictargets.fedl2.io"),
        ("create", "leases.coordination.k8s.io"),
        ("update", "leases.coordination.k8s.io"),
    }
}
WRITES["auto"] = WRITES["advice"] | {("patch", "jobs.batch"), ("create", "events")}


@pytest.mark.parametrize("mode", WRITES)
@pytest.mark.parametrize("namespaces", [[], ["team"]], ids=["everywhere", "one namespace"])
def test_the_agent_does_what_its_mode_says_under_the_rights_of_the_chart(
    tmp_path: Path, mode: str, namespaces: list[str]
) -> None:
    site = make_site("agent", tmp_path / "site")
    backend = {"slot_seconds": 1, "debounce_seconds": 0.1}
    objects = by_helm({"mode": mode, "settings": {"backend": backend}, "namespaces": namespaces})
    with kube_cluster() as cluster:
        may, refused = allowed_by({"agent": rules(objects)}), list[Any]()
        cluster.server.may = lambda asked: may(asked) or bool(refused.append(asked))
        cluster.node("a", gpus=4)
        cluster.job("train", workers=1, suspend=True)
        cluster.opt_in()
        cluster.target("train", most=4, updateMode="Auto" if mode == "auto" else "Off")
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": cluster.server.address}}],
            "users": [{"name": "u", "user": {"token": "agent"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig.yaml").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
        path = configured(
            tmp_path,
            "agent.yaml",
            settings_text(objects),
            state_dir="state",
            backend={"kubeconfig": "kubeconfig.yaml"},
            telemetry={"metrics_port": 0, "metrics_host": "127.0.0.1"},
        )
        with running(site, tmp_path, "cluster_agent.cli", "run", "--config", str(path)) as process:
            wait_for(lambda: bool(cluster.status_of("train").get("recommendation")), process)
            port = next(
                json.loads(line)["metrics_port"]
                for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()
                if '"agent-started"' in line
            )
            for probe in _probes("agent"):
                assert answered(f"http://127.0.0.1:{port}{probe}") == 200
            if mode == "auto":
                wait_for(lambda: cluster.size("train") > 0 and bool(cluster.events()), process)
        assert (cluster.size("train") > 0) == (mode == "auto")
        assert refused == []
        asked = [each for each in cluster.server.asked if each.user == "agent" and each.writes]
        # What is said again is counted in the event that there is.
        assert {(each.verb, each.resource) for each in asked} - {("patch", "events")} == WRITES[mode]


def test_the_learner_serves_from_a_new_volume(tmp_path: Path) -> None:
    site = make_site("learner", tmp_path / "site")
    # As a fresh file system is mounted for a group.
    (tmp_path / "state" / "lost+found").mkdir(parents=True)
    (tmp_path / "state").chmod(0o2775)
    path = configured(
        tmp_path,
        "learner.yaml",
        settings_text(by_helm({"learner": LEARNER}), "learner"),
        state_dir="state",
        listen="127.0.0.1:0",
        port_file="state/ports.json",
        identity={"enroll_port": 0},
        telemetry={"http_listen": "127.0.0.1:0"},
    )
    with running(site, tmp_path, "global_learner.cli", "serve", "--config", str(path)) as process:
        wait_for((tmp_path / "state" / "ports.json").exists, process)
        port = json.loads((tmp_path / "state" / "ports.json").read_text(encoding="utf-8"))["http_port"]
        for probe in _probes("learner"):
            wait_for(lambda probe=probe: answered(f"http://127.0.0.1:{port}{probe}") == 200, process)  # type: ignore[misc]


def test_two_learners_from_one_volume_are_both_ready_and_the_other_one_takes_over(tmp_path: Path) -> None:
    site, url = make_site("learner", tmp_path / "site"), shared_server().new_database()
    volume = tmp_path / "volume"
    volume.mkdir()
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(contextlib.closing(ReservedPort())).address for _ in range(2)]
        learners = []
        for number, page in enumerate(pages):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "state").symlink_to(volume)
            path = configured(
                folder,
                "learner.yaml",
                settings_text(by_helm({"learner": SHARING}), "learner"),
                state_dir="state",
                database=url,
                listen="127.0.0.1:0",
                port_file=f"state/ports-{number}.json",
                identity={"enroll_port": 0},
                telemetry={"http_listen": page},
            )
            learner = contextlib.ExitStack()
            stack.push(learner)
            words = ("global_learner.cli", "serve", "--config", str(path))
            learners.append((learner, learner.enter_context(running(site, folder, *words))))
            if number == 0:
                wait_for((volume / "ports-0.json").exists, learners[0][1])
        (active, first), (_, second) = learners
        assert _probes("learner", SHARING) == {"/healthz"}
        for page, process in zip(pages, (first, second), strict=True):
            wait_for(lambda page=page: answered(f"http://{page}/healthz") == 200, process)  # type: ignore[misc]
        assert [answered(f"http://{page}/readyz") for page in pages] == [200, 503]
        active.close()
        wait_for(lambda: answered(f"http://{pages[1]}/readyz") == 200, second)


def _probes(component: str, learner: dict[str, Any] = LEARNER) -> set[str]:
    (container,) = pod_spec(by_helm({"learner": learner}), component)["containers"]
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == ({"/healthz"} if learner == SHARING else {"/healthz", "/readyz"})
    return probes


def answered(address: str) -> int:
    """The status of a page; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 — a port of this machine
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
