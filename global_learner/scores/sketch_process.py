"""Process that replays policies on one cluster's sketch: its arguments are a question and its limits, both JSON.

It bounds itself as the one that scores does. Its one line of output is every policy's mean completion
time in seconds, None for one that lets jobs wait for ever; if there is none, the last line of its errors says why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from global_learner.scores.replay_process import bound_this_process


def main(arguments: list[str]) -> int:
    """Replay, print, and return the exit code."""
    question, limits = json.loads(arguments[0]), json.loads(arguments[1])
    bound_this_process(limits)  # before numpy is imported, which looks at it once
    from policy_net.errors import PolicyNetError  # noqa: PLC0415

    try:
        print(json.dumps(mean_jcts(question)))
    except (PolicyNetError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    return 0


def mean_jcts(question: dict[str, Any]) -> dict[str, float | None]:
    """By policy, in seconds.

    Args:
        question: `sketch`; `seed`; `policies`: for each name a heuristic's, or `file` and `digest` of a version.

    Raises:
        PolicyNetError: the sketch or a file cannot be used.
        OSError: a file cannot be read.
    """
    from global_learner.scores.scoring import average_jct  # noqa: PLC0415
    from global_learner.scores.sketch_world import world_of  # noqa: PLC0415
    from policy_net.errors import BadInput, NoProgress  # noqa: PLC0415
    from policy_net.exchange.policy_file import digest_of  # noqa: PLC0415
    from policy_net.exchange.workload_sketch import WorkloadSketch  # noqa: PLC0415
    from policy_net.laboratory.speeds.speed import default_speeds  # noqa: PLC0415

    sketch = WorkloadSketch.from_json(question["sketch"])
    workload, environment = world_of(sketch, question["seed"], default_speeds())
    jcts: dict[str, float | None] = {}
    for name, version in question["policies"].items():
        if version is not None and digest_of(Path(version["file"]).read_bytes()) != version["digest"]:
            raise BadInput(f"{version['file']}: damaged: its digest is not {version['digest']}; restore it")
        try:
            jcts[name] = average_jct(name if version is None else version["file"], workload, environment)
        except NoProgress:
            jcts[name] = None
    return jcts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
