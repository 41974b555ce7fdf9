"""Watches of the test API server under many writes and many bookmarks: nothing is left out."""

import http.client
import json
import threading

from apiserver.serving import KubeServer

WRITES = 600


def test_no_event_is_lost_where_a_bookmark_is_due_at_the_same_moment() -> None:
    with KubeServer(bookmark_seconds=0.0005).running() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        path = "/api/v1/namespaces/team/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
        connection.request("GET", path)
        answer = connection.getresponse()

        def write() -> None:
            for number in range(WRITES):
                metadata = {"name": f"m{number}", "namespace": "team"}
                server.call(lambda metadata=metadata: server.store.create("configmaps", {"metadata": metadata}))  # type: ignore[misc]

        writing = threading.Thread(target=write)
        writing.start()
        seen: list[str] = []
        bookmarked, last = 0, f"m{WRITES - 1}"
        while last not in seen:
            event = json.loads(answer.readline())
            version = int(event["object"]["metadata"]["resourceVersion"])
            if event["type"] == "BOOKMARK":
                bookmarked = version
            else:
                assert version > bookmarked, "of what a bookmark says there is no more news"
                seen.append(event["object"]["metadata"]["name"])
        writing.join(60)
        assert seen == [f"m{number}" for number in range(WRITES)]
        connection.close()
