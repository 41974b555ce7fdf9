"""Process that replays policies: `python -m global_learner.scores QUESTION LIMITS`, both JSON.

The question is `file`, `digest` and `cache` of a version to score, or that of `scoring.mean_jcts`. It bounds itself
before it reads anything: niceness, processor time, address space, one thread. Its one line of output is the answer as
JSON; if there is none, the last line of its errors says why.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from global_learner.scores.replay_process import bound_this_process


def main(arguments: list[str]) -> int:
    """Replay, print, and return the exit code."""
    question, limits = map(json.loads, arguments)
    bound_this_process(limits)  # before numpy is imported, which looks at it once
    from global_learner.scores.scoring import check_digest, mean_jcts, score  # noqa: PLC0415
    from policy_net.errors import PolicyNetError  # noqa: PLC0415

    try:
        if "sketch" in question:
            answer = mean_jcts(question)
        else:
            check_digest(question)
            answer = score(Path(question["file"]), Path(question["cache"]))
            answer["cpu_seconds"] = round(time.process_time(), 2)
    except (PolicyNetError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
