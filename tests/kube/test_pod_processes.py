"""Pods as real processes: what they find in their environment, how they end, and that none outlives its cluster."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from apiserver.cluster import Cluster, running_cluster
from apiserver.controllers.processes import MARK
from kube_objects import JOBS, PODS, Json, job, phase_of, pod, pod_spec

SHELL = ["sh", "-c"]


def ended(cluster: Cluster, name: str = "a", phase: str = "Succeeded") -> str:
    """What a pod has said in all."""

    def holds() -> bool:
        found = cluster.find(PODS, name)
        return found is not None and phase_of(found) in ("Succeeded", "Failed")

    cluster.wait(holds, f"the end of pod {name}")
    found = cluster.find(PODS, name)
    assert found is not None
    said = cluster.log(name)
    assert phase_of(found) == phase, said
    return said


def marked(mark: bytes) -> list[int]:
    """Processes of a cluster, whose mark they carry."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_process_gets_its_environment(real_processes: Cluster) -> None:
    cluster = real_processes
    secret = {"token": base64.b64encode(b"hidden").decode()}
    cluster.make("secrets", {"metadata": {"name": "s", "namespace": "team"}, "data": secret})
    cluster.make("configmaps", {"metadata": {"name": "c", "namespace": "team"}, "data": {"rate": "0.1"}})
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "MADE", "value": "$(PLAIN)-$(NONE)-$$(PLAIN)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "no", "optional": True}}},
    ]
    container: Json = {
        "args": ["echo $PLAIN $MADE $NAME $IP $TOKEN ${MAYBE-unset} $C_rate $(PLAIN)"],
        "env": env,
        "envFrom": [{"prefix": "C_", "configMapRef": {"name": "c"}}],
    }
    cluster.make(PODS, pod("a", command=SHELL, container=container))
    said = ended(cluster).split()
    found = cluster.find(PODS, "a")
    assert found is not None
    assert said == ["x", "x-$(NONE)-$(PLAIN)", "a", found["status"]["podIP"], "hidden", "unset", "0.1", "x"]


def test_a_missing_secret_keeps_a_pod_pending_until_it_is_there(real_processes: Cluster) -> None:
    cluster = real_processes
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "t"}}}]
    cluster.make(PODS, pod("a", command=[*SHELL, "echo $T"], container={"env": env}))

    def waiting() -> bool:
        states = ((cluster.find(PODS, "a") or {}).get("status") or {}).get("containerStatuses") or [{}]
        return bool(states[0].get("state", {}).get("waiting", {}).get("reason") == "CreateContainerConfigError")

    cluster.wait(waiting, "the reason why the pod waits")
    cluster.make("secrets", {"metadata": {"name": "s", "namespace": "team"}, "stringData": {"t": "there"}})
    assert ended(cluster) == "there\n"


def test_volumes_are_folders_where_the_process_looks_for_them(real_processes: Cluster) -> None:
    cluster = real_processes
    cluster.make("persistentvolumeclaims", {"metadata": {"name": "claim", "namespace": "team"}, "spec": {}})
    text = {"settings.yaml": "folder: /data/run\n"}
    cluster.make("configmaps", {"metadata": {"name": "c", "namespace": "team"}, "data": text})
    mounts = [
        {"name": "data", "mountPath": "/data"},
        {"name": "settings", "mountPath": "/etc/job"},
        {"name": "own", "mountPath": "/scratch", "subPath": "sub"},
    ]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "settings", "configMap": {"name": "c"}},
        {"name": "own", "emptyDir": {}},
    ]
    for name, line in (
        ("a", "echo kept > /data/f; echo x > /scratch/y; echo /database"),
        ("b", "cat $F /etc/job/settings.yaml"),
    ):
        env = [{"name": "F", "value": "/data/f"}]
        container = {"volumeMounts": mounts, "env": env}
        cluster.make(PODS, pod(name, command=[*SHELL, line], container=container, volumes=volumes))
        said = ended(cluster, name)
        assert said == ("/database\n" if name == "a" else f"kept\nfolder: {cluster.folder}/claims/team/claim/run\n")


def test_pods_reach_each_other_by_the_name_of_a_service_and_on_the_same_port(real_processes: Cluster) -> None:
    cluster = real_processes
    spec = {"selector": {"app": "server"}, "clusterIP": "None"}
    cluster.make("services", {"metadata": {"name": "main", "namespace": "team"}, "spec": spec})
    serve = (
        "import os, socket; s = socket.create_server((os.environ['IP'], 7000)); print('up');"
        "c, _ = s.accept(); c.sendall(os.environ['NAME'].encode()); c.close()"
    )
    ask = (
        "import sys, socket, time\n"
        "while True:\n"
        "    try: s = socket.create_connection((sys.argv[1], 7000)); break\n"
        "    except OSError: time.sleep(0.05)\n"
        "print(s.recv(99).decode())"
    )
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    other = [*SHELL, "exec python -c \"import os, socket; socket.create_server((os.environ['IP'], 7000)).accept()\""]
    cluster.make(PODS, pod("other", command=other, container={"env": env}, terminationGracePeriodSeconds=1))
    for name in ("one", "two"):
        labels = {"app": "server"}
        cluster.make(PODS, pod(name, command=["python", "-c", serve], container={"env": env}, labels=labels))
        asking = ["python", "-c", ask, "main.team.svc.cluster.local"]
        cluster.make(PODS, pod(f"ask-{name}", command=asking))
        assert ended(cluster, f"ask-{name}") == f"{name}\n"
        ended(cluster, name)


def test_a_process_is_told_to_end_and_killed_if_it_does_not(real_processes: Cluster) -> None:
    cluster = real_processes
    line = "trap 'echo told' TERM; echo up; while true; do sleep 0.1; done"
    cluster.make(PODS, pod("a", command=[*SHELL, line], terminationGracePeriodSeconds=1))
    cluster.wait(lambda: cluster.find(PODS, "a") and "up" in cluster.log("a"), "the process")
    [path] = (cluster.folder / "logs").glob("team_a_*/log")
    cluster.delete(PODS, "a")
    cluster.wait(lambda: cluster.find(PODS, "a") is None, "the end of the pod")
    assert path.read_text() == "up\ntold\n"


def test_with_the_first_process_goes_what_it_has_started(real_processes: Cluster) -> None:
    cluster = real_processes
    line = "sleep 1000 & echo $!"
    cluster.make(PODS, pod("a", command=[*SHELL, line]))
    number = int(ended(cluster))
    cluster.wait(lambda: not Path(f"/proc/{number}/cmdline").exists() or _is_zombie(number), "the end of the child")


def test_an_image_may_have_an_entry_point(real_processes: Cluster) -> None:
    with running_cluster(kubelet="processes", images={"trainer": ["echo", "from the image"]}) as cluster:
        cluster.make(PODS, pod("a", container={"args": ["with", "words"]}))
        assert ended(cluster) == "from the image with words\n"
    real_processes.make(PODS, pod("a"))
    real_processes.wait(
        lambda: any(each["reason"] == "Failed" for each in real_processes.all("events")), "an Event that says why"
    )


def test_a_job_of_real_processes_completes(real_processes: Cluster) -> None:
    template = pod_spec(command=[*SHELL, "echo $JOB_COMPLETION_INDEX; exit $((JOB_COMPLETION_INDEX == 9))"])
    real_processes.make(JOBS, job("a", 3, template=template))
    real_processes.wait_for_condition(JOBS, "a", "Complete")
    said = sorted(real_processes.log(each["metadata"]["name"]) for each in real_processes.all(PODS))
    assert said == ["0\n", "1\n", "2\n"]


def test_no_process_is_left_when_the_program_with_the_cluster_is_killed(tmp_path: Path) -> None:
    reported = tmp_path / "told"
    program = (
        "import os, sys, time; from apiserver.cluster import running_cluster; from kube_objects import pod\n"
        "with running_cluster(kubelet='processes') as cluster:\n"
        "    told, mark = sys.argv[1:]\n"
        "    line = f'setsid sleep 1000 & env | grep {mark} > {told}.new; mv {told}.new {told}; sleep 1000'\n"
        "    cluster.make('pods', pod('a', command=['sh', '-c', line]))\n"
        "    time.sleep(1000)\n"
    )
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])]),
        "TMPDIR": str(tmp_path),
    }
    process = subprocess.Popen([sys.executable, "-c", program, str(reported), MARK], env=environment)
    try:
        _wait(reported.exists, "the pod's process")
        mark = reported.read_bytes().strip()
        assert len(marked(mark)) >= 2
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    _wait(lambda: not marked(mark), "the end of all its processes")
    _wait(lambda: not list(tmp_path.glob("fedl2-cluster-*")), "the end of its folder")


def _wait(holds: object, what: str) -> None:
    assert callable(holds)
    deadline = time.monotonic() + 120.0
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _is_zombie(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
