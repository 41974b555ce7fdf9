"""A cache under news that come twice, late or in another order: in the end it has what is there."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_agent.kubernetes.cache import Cache

Json = dict[str, Any]
DEADLINE_SECONDS = 60.0


def made() -> Cache[str]:
    """Keeps the phase; of an object in the phase "Out" it keeps nothing."""

    def keep(found: Json) -> str | None:
        phase: str = found["status"]["phase"]
        return None if phase == "Out" else phase

    return Cache(keep, lambda: 0.0, lambda: None)


def pod(version: int, uid: str = "u", name: str = "a", phase: str = "") -> Json:
    metadata = {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase or f"at {version}"}}


def has(cache: Cache[str]) -> dict[str, tuple[str, str]]:
    return {name: (entry.uid, entry.kept) for (_, name), entry in cache.entries().items()}


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_news_in_any_order_and_more_than_once_end_with_what_is_there(data: st.DataObject) -> None:
    news: list[tuple[str, Json]] = []
    there: dict[str, tuple[str, str]] = {}
    lives = {"a": 0, "b": 0}
    for version in range(1, data.draw(st.integers(1, 10)) + 1):
        name = data.draw(st.sampled_from(["a", "b"]))
        what = data.draw(st.sampled_from(["change", "change", "end", "leave", "ignore"]))
        found = pod(version, f"{name}-{lives[name]}", name, "Out" if what == "ignore" else "")
        if what == "change":
            there[name] = (found["metadata"]["uid"], f"at {version}")
        else:
            there.pop(name, None)
        news.append(("DELETED" if what in ("end", "leave") else "MODIFIED", found))
        lives[name] += what == "end"
    again = data.draw(st.lists(st.sampled_from(news), max_size=4))
    cache = made()
    for kind, found in data.draw(st.permutations([*news, *again])):
        (cache.remove if kind == "DELETED" else cache.put)(found)
    assert has(cache) == there


def test_an_answer_about_an_object_that_went_while_nobody_watched_brings_nothing_back() -> None:
    cache = made()
    cache.put(pod(1))
    cache.replace({})  # its end was missed: it is not among all that was read
    cache.put_answer(pod(2))
    assert has(cache) == {}
    cache.put(pod(3))  # by the watch, which knows better
    assert has(cache) == {"a": ("u", "at 3")}


def test_answers_and_ends_at_the_same_time_bring_nothing_back() -> None:
    cache = made()
    for number in range(200):
        version, uid = 10 * number + 1, f"u-{number}"
        cache.put(pod(version, uid))
        both = threading.Barrier(2)

        def answer(version: int = version, uid: str = uid, both: threading.Barrier = both) -> None:
            both.wait(DEADLINE_SECONDS)
            cache.put_answer(pod(version + 1, uid))

        thread = threading.Thread(target=answer)
        thread.start()
        both.wait(DEADLINE_SECONDS)
        cache.remove(pod(version + 2, uid))
        thread.join(DEADLINE_SECONDS)
        assert has(cache) == {}


@pytest.mark.parametrize("versions", [("x", "y"), ("1", "x")])
def test_of_versions_that_are_no_numbers_the_watch_is_believed_and_an_answer_is_not(versions: tuple[str, str]) -> None:
    cache = made()
    end, after = pod(0), pod(0, phase="again")
    end["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"] = versions
    cache.remove(end)
    cache.put_answer(after)
    assert has(cache) == {}
    cache.put(after)
    assert has(cache) == {"a": ("u", "again")}


@pytest.mark.parametrize("namespaces", ["", "team", ()])
def test_a_cache_of_no_namespaces_is_refused_rather_than_read_from_the_start(namespaces: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="at least one name"):
        Cache(lambda found: found, lambda: 0.0, lambda: None, namespaces)


def test_what_the_server_has_told_is_gone_is_forgotten_and_what_was_made_since_is_not() -> None:
    cache = made()
    cache.put(pod(1))
    cache.forget(("team", "a"), "of before")
    assert has(cache) == {"a": ("u", "at 1")}
    cache.forget(("team", "a"), "u")
    assert has(cache) == {}
    cache.put_answer(pod(1))  # to a write of before, and slower
    assert has(cache) == {}
    cache.put(pod(2, "v"))
    assert has(cache) == {"a": ("v", "at 2")}
