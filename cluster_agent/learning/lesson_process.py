"""Process of a lesson: one question on standard input, its answer on standard output.

It takes little of a core (lowest priority, a bound on memory, rests between decisions), and ends with its agent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from cluster_agent.errors import StateDamaged
from cluster_agent.learning.own_past import acting_of, log_of, machines_of
from cluster_agent.learning.twin_lesson import LessonQuestion, TwinAnswer
from cluster_agent.recording.log_reading import last_decision
from foundation.question_process import be_modest
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.wire import WINDOW_JOBS
from policy_net.laboratory.training.group_training import window_gradient
from policy_net.laboratory.training.twin_windows import (
    FAR,
    TOO_FEW,
    History,
    TwinWindow,
    WindowChoice,
    agreement_of,
    cost_of,
)
from policy_net.laboratory.workloads.workload import JobKindChoice
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.twin_gradient import twin_gradient
from policy_net.set_policy.spreads import spreads_of

MOST_BYTES = 3 * 2**27
"""Of data, 400 MB; a recording of 100,000 jobs takes a third of it, with all that is imported. On Kubernetes agent and
lesson share 600 MB."""


def answer(question: LessonQuestion, between_steps: Callable[[], None]) -> TwinAnswer:
    """Replay a window, and say what it teaches; `between_steps` is called between simulated decisions."""
    content = parse_policy_file(question.policy, "head")
    settings = question.settings

    def rest(_: float) -> None:
        between_steps()

    agreement = None
    try:
        line = last_decision(question.state_dir)
        if line is None:
            return TwinAnswer(None, reason="nothing was decided here yet" if settings.history else TOO_FEW)
        log = log_of(question.state_dir)
        machines = machines_of(line, log)
        choice = WindowChoice(
            settings.window_jobs,
            settings.speed_spread,
            settings.speed_noise,
            JobKindChoice(settings.job_kind),
            settings.work_known,
        )
        history = History(settings.history, log, machines, choice)
        acting = None if log is None else acting_of(question.state_dir, line)
        agreement = None if log is None or acting is None else agreement_of(log, acting, machines, on_progress=rest)
        if agreement == 0.0:
            return TwinAnswer(None, 0.0, f"its mean JCT of the last week is off by {FAR:.0%} or more")
        generator = np.random.default_rng(question.seed)
        if agreement is not None and generator.random() > agreement:
            return TwinAnswer(None, agreement)  # seldom where it is little believed, which counts in every aggregation
        window = history.draw(generator)
        found = _gradient(content, window, question, generator, rest)
    except (BadInput, StateDamaged, NotEnoughSamples) as error:
        return TwinAnswer(None, agreement, reason=str(error))
    jobs = len(window.workload.jobs)
    samples = found.samples * (jobs if isinstance(content.spec, SetSpec) else 1)
    statistics = {**found.statistics, WINDOW_JOBS: float(jobs)}
    return TwinAnswer(GradientResult(found.gradient, samples, float(samples), statistics), agreement)


def _gradient(
    head: PolicyFile,
    window: TwinWindow,
    question: LessonQuestion,
    generator: np.random.Generator,
    rest: Callable[[float], None],
) -> GradientResult:
    """What a window says of the head.

    Raises:
        NotEnoughSamples: it says nothing of a network, or the network is too large for a lesson.
    """
    settings, permute = question.settings, question.permute
    if isinstance(head.spec, SetSpec):
        cost = cost_of(window, head.spec, head.priors, rest)
        return twin_gradient(head.weights, spreads_of(head.spec), cost, settings.gradient, generator, permute=permute)
    try:
        return window_gradient(head, window, settings.groups, generator, rest, permute=permute)
    except NoProgress as error:
        raise NotEnoughSamples(str(error)) from error
    except FloatingPointError as error:
        raise NotEnoughSamples(
            f"the head cannot decide: {error}; `policyctl head reset` goes back to a version"
        ) from error
    except MemoryError as error:
        raise NotEnoughSamples(f"a lesson of this network takes more than {MOST_BYTES >> 20} MB") from error


def main() -> None:
    """Answer one question: `lesson_process PERCENT AGENT`, the agent by its process number."""
    between_steps = be_modest(int(sys.argv[2]), float(sys.argv[1]), MOST_BYTES, from_start=True)
    question = LessonQuestion.from_line(sys.stdin.buffer.readline())
    line = answer(question, between_steps).to_line() + "\n"
    between_steps()  # a past that is too short is found to be so within a second, of which the share counts too
    sys.stdout.write(line)


if __name__ == "__main__":
    main()
