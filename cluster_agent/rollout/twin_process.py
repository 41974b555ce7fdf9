"""Process of the twin: one question on standard input, its figures on standard output, and little of a core meanwhile.

It has the lowest priority and a bound on memory, and rests between simulated decisions so that it never takes more than
its share. It ends with the agent that began it, also if that was killed before this process had begun.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable

from cluster_agent.acting.active_policy import CandidateFactory, Identity
from cluster_agent.rollout.twin_figures import twin_figures
from cluster_agent.rollout.twin_question import HeldPolicy, TwinQuestion
from cluster_agent.settings import PolicySettings
from policy_net.domain import PolicyContext
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import SetPolicy

MOST_BYTES = 2**30
"""Of data; a question of 5,000 jobs takes a tenth of it, with all that is imported."""
_LONGEST_REST_SECONDS = 5.0
_SHORTEST_REST_SECONDS = 0.05


class Share:
    """Keeps a computation to a share of a core, by rests between its steps.

    Args:
        share: above 0, up to 1.
        used: CPU seconds that were used so far.
        clock: seconds that have passed.
        rest: waits so many seconds.
    """

    def __init__(
        self, share: float, used: Callable[[], float], clock: Callable[[], float], rest: Callable[[float], None]
    ) -> None:
        self._share, self._used, self._clock, self._rest = share, used, clock, rest
        self._used_before, self._began = used(), clock()

    def keep(self) -> None:
        """Rest until what was used is no more than the share of what has passed."""
        while True:
            used, passed = self._used() - self._used_before, self._clock() - self._began
            missing = used / self._share - passed
            if missing < _SHORTEST_REST_SECONDS:
                return
            self._rest(min(missing, _LONGEST_REST_SECONDS))


def build(held: HeldPolicy, settings: PolicySettings) -> SchedulerPolicy:
    """A policy as it was when the block began.

    Raises:
        UnknownPolicy, PolicyFileError, BadInput: it cannot be used here.
    """
    if held.file is None:
        return build_policy(held.name, PolicyContext(seed=settings.seed))
    policy = CandidateFactory(settings).from_bytes(held.file, Identity(held.name)).policy
    if isinstance(policy, SetPolicy) and policy.beliefs is not None and held.beliefs is not None:
        policy.beliefs.go_on_from(held.beliefs)
    return policy


def main() -> None:
    """Answer one question: `twin_process PERCENT POLICY-SETTINGS AGENT`, the settings as JSON, the agent by its PID."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    agent = int(sys.argv[3])

    def go_on() -> None:
        if os.getppid() != agent:
            raise SystemExit(1)

    def rest(seconds: float) -> None:
        time.sleep(seconds)
        go_on()

    go_on()
    question = TwinQuestion.from_line(sys.stdin.buffer.readline())
    settings = PolicySettings.model_validate_json(sys.argv[2])
    share = Share(float(sys.argv[1]) / 100.0, time.process_time, time.monotonic, rest)

    def on_decision() -> None:
        share.keep()
        go_on()

    figures = twin_figures(
        question,
        lambda: build(question.incumbent, settings),
        lambda: build(question.candidate, settings),
        on_decision,
    )
    sys.stdout.write(json.dumps(figures, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
