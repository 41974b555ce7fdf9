"""Caches that follow a server, over real HTTP: equal to it again after all that servers and networks do."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apiserver.serving import Asked, Fault, KubeServer
from kube_clients import api_of, pod

from cluster_agent.kubernetes import list_watch
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.list_watch import ListWatch
from cluster_agent.kubernetes.resources import PODS, Resource

DEADLINE_SECONDS = 60.0


def phase(found: dict[str, Any]) -> str | None:
    return (found.get("status") or {}).get("phase")


class Follower:
    """A cache of pods and the thread that follows them."""

    def __init__(self, server: KubeServer, resource: Resource = PODS, **more: Any) -> None:
        self.changes = 0
        self.stop = threading.Event()
        self.cache: Cache[str] = Cache(phase, time.monotonic, self._changed)
        self.list_watch = ListWatch(api_of(server), resource, self.cache, time.monotonic, **more)
        self.thread = threading.Thread(target=self.list_watch.run, args=(self.stop.wait,), daemon=True)
        self.thread.start()

    def _changed(self) -> None:
        self.changes += 1

    def has(self) -> dict[str, str]:
        return {name: entry.kept for (_, name), entry in self.cache.entries().items()}

    def end(self) -> None:
        self.stop.set()
        self.list_watch.stop()
        self.thread.join(DEADLINE_SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "_FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(list_watch, "_LONGEST_WAIT_SECONDS", 0.2)


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer(bookmark_seconds=0.3).running() as running:
        yield running


@pytest.fixture
def follow(server: KubeServer) -> Iterator[Callable[..., Follower]]:
    made: list[Follower] = []

    def start(**more: Any) -> Follower:
        made.append(Follower(server, **more))
        return made[-1]

    yield start
    for each in made:
        each.end()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make(server: KubeServer, *names: str, namespace: str = "team") -> None:
    for name in names:
        server.call(lambda each=name: server.store.create("pods", pod(each, namespace)))


def end(server: KubeServer, name: str) -> None:
    server.call(lambda: server.store.delete("pods", "team", name, {"gracePeriodSeconds": 0}))


def stored(server: KubeServer) -> dict[str, str]:
    return server.call(lambda: {each["metadata"]["name"]: each["status"]["phase"] for each in server.store.all("pods")})


def run(server: KubeServer, name: str, now: str = "Running") -> None:
    def write() -> None:
        found = server.store.get("pods", "team", name)
        server.store.replace("pods", "team", name, {**found, "status": {"phase": now}}, "status")

    server.call(write)


@pytest.mark.parametrize("watch_list", [True, False])
def test_a_cache_has_what_is_there_and_what_comes_changes_and_goes(
    server: KubeServer, follow: Callable[..., Follower], watch_list: bool
) -> None:
    server.offers_watch_list = watch_list
    make(server, "a", "b")
    follower = follow()
    assert follower.cache.wait_synced(DEADLINE_SECONDS)
    assert follower.has() == {"a": "Pending", "b": "Pending"}
    make(server, "c")
    run(server, "a")
    end(server, "b")
    wait_for(lambda: follower.has() == {"a": "Running", "c": "Pending"})
    kinds = [asked.verb for asked in server.asked]
    assert ("list" in kinds) is not watch_list


def test_lists_come_in_pages(
    server: KubeServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "PAGE_OBJECTS", 3)
    server.offers_watch_list = False
    make(server, *[f"p{number}" for number in range(10)])
    follower = follow()
    wait_for(lambda: len(follower.has()) == 10)
    assert sum(asked.verb == "list" for asked in server.asked) == 4


def test_a_list_whose_next_page_has_run_out_begins_anew(
    server: KubeServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "PAGE_OBJECTS", 3)
    server.offers_watch_list = False
    make(server, *[f"p{number}" for number in range(5)])
    lists = 0

    def once(asked: Asked) -> Fault | None:
        nonlocal lists
        lists += asked.verb == "list"
        if asked.verb == "list" and lists == 2:
            server.store.create("pods", pod("late", "team"))
            server.store.compact()
        return None

    server.faults = once
    follower = follow()
    wait_for(lambda: len(follower.has()) == 6)


@pytest.mark.parametrize("as_http", [True, False])
def test_a_watch_from_a_version_that_is_no_longer_kept_lists_anew(
    server: KubeServer, follow: Callable[..., Follower], as_http: bool
) -> None:
    server.expired_as_http = as_http
    make(server, "a")
    follower = follow()
    wait_for(lambda: follower.has() == {"a": "Pending"})
    away = threading.Event()
    server.faults = lambda asked: None if away.is_set() else Fault(code=503)
    server.close_watches()
    end(server, "a")
    make(server, "b", "c")
    server.call(server.store.compact)
    away.set()
    wait_for(lambda: follower.has() == {"b": "Pending", "c": "Pending"})


@pytest.mark.parametrize("how", ["half", "twice", "close"])
def test_watches_that_are_cut_repeated_or_closed_at_once_lose_nothing(
    server: KubeServer, follow: Callable[..., Follower], how: str
) -> None:
    make(server, "a")
    watches = 0

    def fault(asked: Asked) -> Fault | None:
        nonlocal watches
        watches += asked.verb == "watch"
        return Fault(watch=how) if asked.verb == "watch" and (how == "twice" or watches % 3) else None

    server.faults = fault
    follower = follow()
    wait_for(lambda: follower.has() == {"a": "Pending"})
    for number in range(5):
        make(server, f"n{number}")
        run(server, "a", f"state-{number}")
        wait_for(lambda: follower.has() == stored(server))


def test_a_store_that_was_set_back_is_noticed_by_its_silence(
    server: KubeServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "SILENCE_SECONDS", 1.0)
    make(server, "a", "b")
    follower = follow()
    wait_for(lambda: len(follower.has()) == 2)
    make(server, *[f"later-{number}" for number in range(8)])
    wait_for(lambda: len(follower.has()) == 10)
    server.call(lambda: server.store.set_back(8))
    server.close_watches()
    run(server, "a")
    wait_for(lambda: follower.has() == {"a": "Running", "b": "Pending"})


@pytest.mark.heavy
def test_a_server_that_is_in_trouble_is_not_knocked_at_without_a_pause(
    server: KubeServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "_FIRST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(list_watch, "_LONGEST_WAIT_SECONDS", 2.0)
    for trouble in (Fault(code=500), Fault(watch="close"), Fault(code=403)):
        server.faults = lambda asked, what=trouble: what if what.code or asked.verb == "watch" else None
        before = len(server.asked)
        follower = follow()
        time.sleep(1.5)
        # At waits that double from at most 0.2 s, nobody asks more often than at the least share of each.
        assert len(server.asked) - before <= 12
        follower.end()


def test_selectors_choose_what_is_followed(server: KubeServer, follow: Callable[..., Follower]) -> None:
    server.call(lambda: server.store.create("pods", pod("mine", "team", labels={"app": "x"})))
    make(server, "other")
    make(server, "elsewhere", namespace="elsewhere")
    follower = follow(namespace="team", selectors={"labelSelector": "app=x"})
    wait_for(lambda: follower.has() == {"mine": "Pending"})

    def relabel() -> None:
        found = server.store.get("pods", "team", "mine")
        changed = {**found, "metadata": {**found["metadata"], "labels": {}}}
        server.store.replace("pods", "team", "mine", changed)

    server.call(relabel)
    wait_for(lambda: follower.has() == {})


def test_a_pod_made_anew_under_its_name_is_the_new_one(server: KubeServer, follow: Callable[..., Follower]) -> None:
    make(server, "a")
    follower = follow()
    wait_for(lambda: follower.has() == {"a": "Pending"})
    old = follower.cache.get(("team", "a"))
    end(server, "a")
    make(server, "a")
    wait_for(
        lambda: (found := follower.cache.get(("team", "a"))) is not None and old is not None and found.uid != old.uid
    )


def test_a_cache_says_how_old_it_is(server: KubeServer, follow: Callable[..., Follower]) -> None:
    follower = follow()
    assert follower.cache.wait_synced(DEADLINE_SECONDS)
    server.faults = lambda asked: Fault(code=500)
    server.close_watches()
    wait_for(lambda: follower.cache.age_seconds > 1.0)
    server.faults = lambda asked: None
    wait_for(lambda: follower.cache.age_seconds < 1.0)


def test_objects_that_make_no_sense_are_read_anew(server: KubeServer, follow: Callable[..., Follower]) -> None:
    make(server, "a")
    follower = follow()
    wait_for(lambda: follower.has() == {"a": "Pending"})
    server.call(lambda: server.store.create("pods", {"metadata": {"name": "b", "namespace": "team"}, "status": {}}))
    wait_for(lambda: server.store.version > 1001 and follower.has() == {"a": "Pending"})
    make(server, "c")
    wait_for(lambda: follower.has() == {"a": "Pending", "c": "Pending"})


def test_an_object_that_its_reader_cannot_take_does_not_end_the_following(server: KubeServer) -> None:
    def fussy(found: dict[str, Any]) -> str:
        if found["metadata"]["name"] == "odd":
            raise TypeError("odd")
        return str(found["metadata"]["name"])

    make(server, "a")
    cache: Cache[str] = Cache(fussy, time.monotonic, lambda: None)
    stop = threading.Event()
    following = ListWatch(api_of(server), PODS, cache, time.monotonic)
    thread = threading.Thread(target=following.run, args=(stop.wait,), daemon=True)
    thread.start()
    wait_for(lambda: cache.is_synced)
    make(server, "odd")
    wait_for(lambda: "fault" in following.trouble)
    end(server, "odd")
    make(server, "b")
    wait_for(lambda: {name for _, name in cache.entries()} == {"a", "b"})
    stop.set()
    following.stop()
    thread.join(DEADLINE_SECONDS)


def test_a_resource_that_is_not_there_yet_is_waited_for(server: KubeServer, follow: Callable[..., Follower]) -> None:
    follower = follow(resource=Resource("fedl2.io", "v1", "things", "Thing"))
    wait_for(lambda: "404" in follower.list_watch.trouble)
    names = {"plural": "things", "kind": "Thing"}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "fedl2.io", "scope": "Namespaced", "names": names, "versions": [version]}
    crds = "customresourcedefinitions.apiextensions.k8s.io"
    server.call(lambda: server.store.create(crds, {"metadata": {"name": "things.fedl2.io"}, "spec": spec}))
    thing = {"metadata": {"name": "a", "namespace": "team"}, "status": {"phase": "here"}}
    server.call(lambda: server.store.create("things.fedl2.io", thing))
    wait_for(lambda: follower.has() == {"a": "here"})
    assert follower.list_watch.trouble == ""


def test_an_answer_that_is_slower_than_the_news_of_an_end_brings_nothing_back() -> None:
    cache: Cache[str] = Cache(lambda found: str(found["status"]), time.monotonic, lambda: None)

    def pod(version: int, uid: str = "u") -> dict[str, Any]:
        metadata = {"namespace": "team", "name": "a", "uid": uid, "resourceVersion": str(version)}
        return {"metadata": metadata, "status": f"at {version}"}

    cache.put_answer(pod(1))
    assert cache.get(("team", "a")) is not None
    cache.remove(pod(3))
    cache.put_answer(pod(2))
    assert cache.get(("team", "a")) is None
    cache.put_answer(pod(4, "another"))
    entry = cache.get(("team", "a"))
    assert entry is not None
    assert entry.uid == "another"
    cache.remove(pod(5, "another"))
    cache.put(pod(6, "another"))  # by the watch: it left the selection, and comes into it again
    assert cache.get(("team", "a")) is not None
