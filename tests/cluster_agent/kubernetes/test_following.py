"""Following of several namespaces: what goes wrong in one is that one's, whatever is right in the others stays so."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from apiserver.serving import KubeServer
from kube_clients import api_of, pod

from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.list_watch import STALE_SECONDS, Following, unread_in
from cluster_agent.kubernetes.resources import PODS

DEADLINE_SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer(bookmark_seconds=0.2, namespaces=("team", "lab", "other")).running() as made:
        for namespace in ("team", "lab", "other"):
            made.call(lambda namespace=namespace: made.store.create("pods", pod("a", namespace)))  # type: ignore[misc]
        yield made


@contextmanager
def following_of(server: KubeServer, *namespaces: str) -> Iterator[Following[tuple[str, str]]]:
    stopping = threading.Event()

    def keep(found: dict[str, Any]) -> tuple[str, str]:
        return found["metadata"]["namespace"], found["metadata"]["name"]

    made: Following[tuple[str, str]] = Following(api_of(server), PODS, keep, time.monotonic, lambda: None, namespaces)
    threads = made.threads(stopping.wait)
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        stopping.set()
        made.stop()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)


def wait(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def refuse(server: KubeServer, *namespaces: str) -> None:
    server.may = lambda asked: asked.namespace not in namespaces


def test_pods_of_the_namespaces_are_followed_and_no_others(server: KubeServer) -> None:
    with following_of(server, "team", "lab") as following:
        wait(lambda: following.cache.is_synced)
        assert set(following.cache.entries()) == {("team", "a"), ("lab", "a")}
        server.call(lambda: server.store.create("pods", pod("b", "lab")))
        server.call(lambda: server.store.delete("pods", "team", "a", {"gracePeriodSeconds": 0}))
        wait(lambda: set(following.cache.entries()) == {("lab", "a"), ("lab", "b")})
        assert following.unread() == {}
    assert {asked.namespace for asked in server.asked} == {"team", "lab"}


def test_one_that_is_refused_is_told_and_taken_up_once_it_may_be_read(server: KubeServer) -> None:
    refuse(server, "lab")
    with following_of(server, "team", "lab") as following:
        wait(lambda: following.has_read)
        assert not following.cache.is_synced
        assert following.cache.has_read("team")
        assert list(following.unread()) == ["lab"]
        assert "forbidden" in following.unread()["lab"]
        assert set(following.cache.entries()) == {("team", "a")}
        assert not following.is_stale
        refuse(server)
        wait(lambda: following.cache.is_synced and not following.unread())
        assert set(following.cache.entries()) == {("team", "a"), ("lab", "a")}
        assert following.trouble == ""


def test_a_right_that_is_taken_away_is_noticed_and_what_was_seen_stays(server: KubeServer) -> None:
    with following_of(server, "team", "lab") as following:
        wait(lambda: following.cache.is_synced)
        refuse(server, "lab")
        server.close_watches()  # one that is open goes on until it ends
        wait(lambda: list(following.unread()) == ["lab"])
        assert ("lab", "a") in following.cache.entries()


def test_where_none_can_be_read_nothing_is_settled(server: KubeServer) -> None:
    refuse(server, "team", "lab")
    with following_of(server, "team", "lab") as following:
        wait(lambda: len(following.unread()) == 2 and "forbidden" in following.trouble)
        assert not following.has_read
        assert following.is_stale
        assert unread_in([following]).keys() == {"team", "lab"}


def test_of_one_alone_nothing_is_left_out(server: KubeServer) -> None:
    refuse(server, "lab")
    with following_of(server, "lab") as following:
        wait(lambda: following.trouble)
        assert following.unread() == {}
        assert not following.has_read


def test_one_that_is_silent_for_too_long_is_told_and_not_the_others() -> None:
    now = [0.0]
    cache: Cache[str] = Cache(lambda found: "", lambda: now[0], lambda: None, ("team", "lab"))
    cache.replace({}, "team")
    cache.replace({}, "lab")
    now[0] = STALE_SECONDS + 1.0
    cache.heard("team")
    assert cache.age_in("team") == 0.0
    assert cache.age_in("lab") == cache.age_seconds == STALE_SECONDS + 1.0


def test_reading_one_anew_changes_no_other() -> None:
    changes: list[None] = []
    cache: Cache[str] = Cache(
        lambda found: found["metadata"]["name"], lambda: 0.0, lambda: changes.append(None), ("team", "lab")
    )
    for namespace in ("team", "lab"):
        metadata = {"name": "a", "namespace": namespace, "uid": namespace, "resourceVersion": "5"}
        key, entry = cache.entry_of({"metadata": metadata})
        assert entry is not None
        cache.replace({key: entry}, namespace)
    assert len(changes) == 2
    cache.replace({}, "team")
    assert set(cache.entries()) == {("lab", "a")}
    assert len(changes) == 3
    # News of one that is gone, which come late, are known to be old; of the other they are none.
    late = {"metadata": {"name": "a", "namespace": "team", "uid": "team", "resourceVersion": "5"}}
    cache.put_answer(late)
    assert set(cache.entries()) == {("lab", "a")}
