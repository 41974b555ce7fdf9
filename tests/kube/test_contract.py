"""What faithful means: each of these holds on a real API server, and on the one that the tests use in its place.

Here: versions, lists, watches, deletion. Beside it: what writes do, and custom resources.
"""

import pytest
from contract_client import MAPS, Json, Server, version


def test_a_made_object_has_what_only_a_server_gives(server: Server) -> None:
    found = server.make("a", uid="mine", resourceVersion="", creationTimestamp="1999-01-01T00:00:00Z")
    metadata = found["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2020"
    assert version(found) > 0
    assert (found["kind"], found["apiVersion"]) == ("ConfigMap", "v1")


def test_a_name_may_be_generated_but_not_missing(server: Server) -> None:
    code, found = server.ask("POST", MAPS, {"metadata": {"generateName": "a-"}})
    assert code == 201
    assert found["metadata"]["name"].startswith("a-")
    assert len(found["metadata"]["name"]) == len("a-") + 5
    code, status = server.ask("POST", MAPS, {"metadata": {}})
    assert (code, status["reason"]) == (422, "Invalid")


def test_versions_rise_over_all_objects_and_a_write_of_the_same_raises_none(server: Server) -> None:
    first, second = server.make("a"), server.make("b")
    assert version(second) > version(first)
    code, same = server.ask("PUT", f"{MAPS}/a", first)
    assert (code, version(same)) == (200, version(first))
    code, changed = server.ask("PUT", f"{MAPS}/a", {**first, "data": {"a": "2"}})
    assert version(changed) > version(second)


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "reason"),
    [
        ("POST", MAPS, {"metadata": {"name": "there"}}, 409, "AlreadyExists"),
        ("PUT", f"{MAPS}/there", {"metadata": {"name": "there", "resourceVersion": "1"}}, 409, "Conflict"),
        ("PUT", f"{MAPS}/there", {"metadata": {"name": "another"}}, 400, "BadRequest"),
        ("PATCH", f"{MAPS}/none", {}, 404, "NotFound"),
        ("DELETE", f"{MAPS}/there", {"preconditions": {"uid": "another"}}, 409, "Conflict"),
        ("DELETE", f"{MAPS}/none", None, 404, "NotFound"),
        ("GET", "/api/v1/namespaces/x/nothings", None, 404, "NotFound"),
        ("GET", f"{MAPS}?labelSelector=a%20b", None, 400, "BadRequest"),
        ("GET", f"{MAPS}?fieldSelector=data.a%3D1", None, 400, "BadRequest"),
        ("GET", f"{MAPS}?limit=1&continue=nonsense", None, 400, "BadRequest"),
    ],
)
def test_refusals(server: Server, method: str, path: str, body: Json | None, code: int, reason: str) -> None:
    server.make("there")
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    found, status = server.ask(method, path, body, kind)
    assert (found, status["kind"], status["reason"], status["code"]) == (code, "Status", reason, code)


def test_a_list_from_a_version_of_the_future_is_too_large(server: Server) -> None:
    code, status = server.ask("GET", f"{MAPS}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan")
    assert (code, status["reason"]) == (504, "Timeout")
    assert "Too large resource version" in status["message"]


def test_pages_show_the_state_of_the_first_one(server: Server) -> None:
    for name in "abcde":
        server.make(name)
    code, page = server.ask("GET", f"{MAPS}?limit=2")
    assert (code, page["kind"]) == (200, "ConfigMapList")
    server.make("bb")
    server.ask("DELETE", f"{MAPS}/e")
    names = [item["metadata"]["name"] for item in page["items"]]
    while more := page["metadata"].get("continue"):
        code, page = server.ask("GET", f"{MAPS}?limit=2&continue={more}")
        assert code == 200
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == list("abcde")


def test_a_watch_tells_what_comes_after_its_version(server: Server) -> None:
    first = server.make("a", labels={"app": "x"})
    server.ask("PUT", f"{MAPS}/a", {**first, "data": {"a": "2"}})
    server.make("b")
    server.ask("DELETE", f"{MAPS}/a")
    found = server.watch(f"resourceVersion={version(first)}", 3)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in found] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    assert version(found[2]["object"]) > version(found[1]["object"])


def test_a_watch_of_a_selection_sees_objects_come_into_it_and_leave_it(server: Server) -> None:
    first = server.make("a")
    patch = "application/merge-patch+json"
    server.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}}, patch)
    server.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": None}}}, patch)
    found = server.watch(f"resourceVersion={version(first)}&labelSelector=app%3Dx", 2)
    assert [event["type"] for event in found] == ["ADDED", "DELETED"]


def test_a_watch_may_begin_with_all_there_is(server: Server) -> None:
    server.make("a")
    server.make("b")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    found = server.watch(query, 3)
    assert [event["type"] for event in found] == ["ADDED", "ADDED", "BOOKMARK"]
    metadata = found[2]["object"]["metadata"]
    assert metadata["annotations"]["k8s.io/initial-events-end"] == "true"
    assert int(metadata["resourceVersion"]) >= version(found[1]["object"])


def test_a_watch_ends_after_its_time(server: Server) -> None:
    first = server.make("a")
    assert server.watch(f"resourceVersion={version(first)}&timeoutSeconds=1", 5) == []


def test_finalizers_hold_an_object_until_they_are_gone(server: Server) -> None:
    server.make("a", finalizers=["fedl2.io/x"])
    code, found = server.ask("DELETE", f"{MAPS}/a")
    assert (code, "deletionTimestamp" in found["metadata"]) == (200, True)
    code, found = server.ask("GET", f"{MAPS}/a")
    assert code == 200
    patch = {"metadata": {"finalizers": None}}
    server.ask("PATCH", f"{MAPS}/a", patch, "application/merge-patch+json")
    assert server.ask("GET", f"{MAPS}/a")[0] == 404


def test_a_dry_run_changes_nothing(server: Server) -> None:
    code, found = server.ask("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}})
    assert (code, found["metadata"]["name"]) == (201, "a")
    assert server.ask("GET", f"{MAPS}/a")[0] == 404


def test_a_namespace_has_to_be_there(server: Server) -> None:
    code, status = server.ask("POST", "/api/v1/namespaces/never-made/configmaps", {"metadata": {"name": "a"}})
    assert (code, status["reason"], status["details"]["kind"]) == (404, "NotFound", "namespaces")


def test_times_of_leases_need_a_fraction(server: Server) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{server.namespace}/leases"
    for time, wanted in (("2026-01-01T00:00:00Z", 400), ("2026-01-01T00:00:00.000000Z", 201)):
        body = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x", "renewTime": time}}
        assert server.ask("POST", leases, body)[0] == wanted
