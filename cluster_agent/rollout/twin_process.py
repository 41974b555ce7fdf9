"""Process of the twin: one question on standard input, its figures on standard output, and little of a core meanwhile.

It has the lowest priority and a bound on memory, and rests between simulated decisions so that it never takes more than
its share. It ends with the agent that began it, also if that was killed before this process had begun.
"""

from __future__ import annotations

import json
import sys

from cluster_agent.acting.active_policy import CandidateFactory, PolicyIdentity
from cluster_agent.rollout.twin_figures import twin_figures
from cluster_agent.rollout.twin_question import AGENTS_PRIORITY, BlockQuestion, PolicyAtBlock
from cluster_agent.settings import PolicySettings
from foundation.asked_process import LOWEST_PRIORITY, be_modest
from policy_net.domain import PolicyContext
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import SetPolicy

MOST_BYTES = 2**30
"""Of data; a question of 5,000 jobs takes a tenth of it, with all that is imported."""


def build(held: PolicyAtBlock, settings: PolicySettings) -> SchedulerPolicy:
    """A policy as it was when the block began.

    Raises:
        UnknownPolicy, PolicyFileError, BadInput: it cannot be used here.
    """
    if held.file is None:
        return build_policy(held.name, PolicyContext(seed=settings.seed))
    policy = CandidateFactory(settings).from_bytes(held.file, PolicyIdentity(held.name)).policy
    if isinstance(policy, SetPolicy) and policy.beliefs is not None and held.beliefs is not None:
        policy.beliefs.go_on_from(held.beliefs)
    return policy


def main() -> None:
    """Answer one question: `twin_process PERCENT POLICY-SETTINGS AGENT [agents-priority]`, the settings as JSON, the
    agent by its PID."""
    niceness = 0 if AGENTS_PRIORITY in sys.argv[4:] else LOWEST_PRIORITY
    between_steps = be_modest(int(sys.argv[3]), float(sys.argv[1]), MOST_BYTES, niceness=niceness)
    question = BlockQuestion.from_line(sys.stdin.buffer.readline())
    settings = PolicySettings.model_validate_json(sys.argv[2])
    figures = twin_figures(
        question,
        lambda: build(question.incumbent, settings),
        lambda: build(question.candidate, settings),
        between_steps,
    )
    sys.stdout.write(json.dumps(figures, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
