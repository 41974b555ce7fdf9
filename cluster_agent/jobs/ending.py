"""Ends of jobs, as who waits for one learns of them: by an exit code, and a line if it is not the one hoped for."""

from __future__ import annotations

import time
from typing import Any

from cluster_agent.errors import JobNotDone
from cluster_agent.jobs.client import JobClient

LOOK_SECONDS = 0.5


def wait_for_end(client: JobClient, name: str) -> dict[str, Any]:
    """A job's facts once it has ended.

    Raises:
        AgentUnreachable: the agent does not answer any more; its jobs train on.
    """
    while True:
        facts: dict[str, Any] = client.call("jobs", {"name": name})["jobs"][0]
        if facts["ended"]:
            return facts
        time.sleep(LOOK_SECONDS)


def check_done(facts: dict[str, Any]) -> None:
    """See that a job that has ended is done.

    Raises:
        JobNotDone: it has failed, or was cancelled.
    """
    if facts["state"] == "failed":
        raise JobNotDone(f"{facts['name']} has failed: {facts['note']}; see `cluster-agent logs {facts['name']}`")
    if facts["state"] != "done":
        raise JobNotDone(f"{facts['name']} was {facts['state']}")
