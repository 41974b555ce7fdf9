"""The stand-in kubelet with containers that are not real: phases, restarts, deletion, addresses."""

from apiserver.cluster import Cluster
from apiserver.controllers.pretending import Fate
from kube_objects import PODS, Clock, Json, phase_of, pod


def settled(cluster: Cluster, name: str = "a") -> Json:
    cluster.server.settle()
    found = cluster.find(PODS, name)
    assert found is not None
    return found


def state(found: Json) -> Json:
    result: Json = found["status"]["containerStatuses"][0]
    return result


def service(cluster: Cluster, name: str, **selector: str) -> str:
    spec = {"selector": selector, "clusterIP": "None"}
    found = cluster.make("services", {"metadata": {"name": name, "namespace": "team"}, "spec": spec})
    return cluster.server.call(lambda: cluster.addresses.of_service(found))


def test_a_pod_runs_and_ends(cluster: Cluster, clock: Clock) -> None:
    cluster.pretending.fate = lambda found: Fate(run_seconds=5.0, exit_code=int(found["metadata"]["name"] == "bad"))
    for name in ("good", "bad"):
        cluster.make(PODS, pod(name))
        found = settled(cluster, name)
        assert phase_of(found) == "Running"
        assert {each["type"]: each["status"] for each in found["status"]["conditions"]}["Ready"] == "True"
    assert len({settled(cluster, name)["status"]["podIP"] for name in ("good", "bad")}) == 2
    clock.now += 5.0
    assert phase_of(settled(cluster, "good")) == "Succeeded"
    assert phase_of(settled(cluster, "bad")) == "Failed"
    assert state(settled(cluster, "bad"))["state"]["terminated"]["exitCode"] == 1


def test_a_container_starts_again_where_its_pod_says_so(cluster: Cluster, clock: Clock) -> None:
    cluster.pretending.fate = lambda found: Fate(run_seconds=5.0, exit_code=1)
    cluster.make(PODS, pod("a", restartPolicy="OnFailure"))
    cluster.server.settle()
    clock.now += 5.0
    assert state(settled(cluster))["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert phase_of(settled(cluster)) == "Running"
    cluster.pretending.fate = lambda found: Fate(run_seconds=5.0)
    clock.now += 10.0
    assert state(settled(cluster))["restartCount"] == 1
    clock.now += 5.0
    assert phase_of(settled(cluster)) == "Succeeded"


def test_an_image_that_never_comes_keeps_its_pod_pending(cluster: Cluster, clock: Clock) -> None:
    cluster.pretending.fate = lambda found: Fate(pulls=False)
    cluster.make(PODS, pod("a"))
    found = settled(cluster)
    assert (phase_of(found), state(found)["state"]["waiting"]["reason"]) == ("Pending", "ImagePullBackOff")
    cluster.pretending.fate = lambda found: Fate()
    clock.now += 10.0
    assert phase_of(settled(cluster)) == "Running"


def test_what_does_not_obey_is_killed_when_its_grace_is_over(cluster: Cluster, clock: Clock) -> None:
    cluster.pretending.fate = lambda found: Fate(obeys=False)
    cluster.make(PODS, pod("a", terminationGracePeriodSeconds=20))
    cluster.server.settle()
    cluster.delete(PODS, "a")
    clock.now += 19.0
    assert phase_of(settled(cluster)) == "Running"
    clock.now += 1.0
    cluster.server.settle()
    assert cluster.find(PODS, "a") is None


def test_a_silent_kubelet_leaves_its_pods_as_they_are(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    node = settled(cluster)["spec"]["nodeName"]
    cluster.kubelet.silent.add(node)
    cluster.delete(PODS, "a")
    assert phase_of(settled(cluster)) == "Running"
    cluster.server.call(lambda: cluster.kubelet.speak(node))
    cluster.server.settle()
    assert cluster.find(PODS, "a") is None


def test_a_node_that_crashes_takes_its_pods_along_and_nobody_says_so(cluster: Cluster, clock: Clock) -> None:
    cluster.make(PODS, pod("a"))
    node = settled(cluster)["spec"]["nodeName"]
    cluster.server.call(lambda: cluster.kubelet.crash(node))
    assert phase_of(settled(cluster)) == "Running"
    cluster.delete("nodes", node, "")
    cluster.server.settle()
    clock.now += 40.0
    cluster.server.settle()
    assert cluster.find(PODS, "a") is None


def test_the_only_pod_of_a_service_has_its_address_also_when_made_anew(cluster: Cluster) -> None:
    address = service(cluster, "main", app="main")
    for name in ("one", "two"):
        cluster.make(PODS, pod(name, labels={"app": "main"}))
        assert settled(cluster, name)["status"]["podIP"] == address
        cluster.delete(PODS, name)
        cluster.server.settle()


def test_a_pod_waits_for_the_address_of_the_one_before_it(cluster: Cluster, clock: Clock) -> None:
    address = service(cluster, "main", app="main")
    cluster.pretending.fate = lambda found: Fate(obeys=False)
    cluster.make(PODS, pod("one", labels={"app": "main"}))
    cluster.server.settle()
    cluster.delete(PODS, "one")
    cluster.make(PODS, pod("two", labels={"app": "main"}))
    assert phase_of(settled(cluster, "two")) in ("", "Pending")
    clock.now += 30.0
    cluster.server.settle()
    clock.now += 1.0
    assert settled(cluster, "two")["status"]["podIP"] == address


def test_pods_that_a_service_selects_together_have_addresses_of_their_own(cluster: Cluster) -> None:
    address = service(cluster, "all", app="x")

    def make() -> None:
        for name in ("one", "two"):
            cluster.server.store.create(PODS, pod(name, labels={"app": "x"}))

    cluster.server.call(make)
    assert address not in {settled(cluster, name)["status"]["podIP"] for name in ("one", "two")}
