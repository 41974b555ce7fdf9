"""Process that scores one policy file: `python -m global_learner.scores FILE DIGEST CACHE LIMITS`.

It bounds itself before it reads anything: niceness, processor time, address space, one thread. Its one line of output
is the score as JSON; if there is none, the last line of its errors says why.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from global_learner.scores.replay_process import bound_this_process


def main(arguments: list[str]) -> int:
    """Score, print, and return the exit code."""
    policy_file, digest, cache = Path(arguments[0]), arguments[1], Path(arguments[2])
    limits = json.loads(arguments[3])
    bound_this_process(limits)  # before numpy is imported, which looks at it once
    from global_learner.scores.scoring import score  # noqa: PLC0415
    from policy_net.errors import PolicyNetError  # noqa: PLC0415
    from policy_net.exchange.policy_file import digest_of  # noqa: PLC0415

    try:
        found = digest_of(policy_file.read_bytes())
        if found != digest:
            print(f"{policy_file}: damaged: its digest is {found}, expected {digest}; restore it", file=sys.stderr)
            return 1
        result = score(policy_file, cache)
    except (PolicyNetError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    print(json.dumps({**result, "cpu_seconds": round(time.process_time(), 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
