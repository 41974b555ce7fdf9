"""Decisions of an agent over the simulated machine, with its log, its guard and a policy by name."""

from __future__ import annotations

from job_shell import Shell

from cluster_agent.active_policy import CandidateFactory, DeadlineAsker, Decider, Turn, decide_recorded
from cluster_agent.guard import Guard, Proposal
from cluster_agent.loop import KindNames
from cluster_agent.recording.decision_log import DecisionLog, DecisionRecorder
from cluster_agent.recording.state_files import write_json
from cluster_agent.settings import PolicySettings
from policy_net.domain import PolicyContext
from policy_net.policy import build_policy
from policy_net.throughput.parametric import OnlineFit


class Deciding:
    """An agent's decisions, with its log, its guard and a policy by name."""

    def __init__(self, shell: Shell, policy: str) -> None:
        self.shell = shell
        settings = PolicySettings(initial=policy)
        self.candidate = CandidateFactory(settings).from_name_or_file(policy)
        self.decider = Decider(self.candidate, DeadlineAsker(60.0))
        fallback = build_policy("drf", PolicyContext())
        self.guard = Guard(fallback, 60.0)
        self.recorder = DecisionRecorder(DecisionLog(shell.folder, 1_000_000, 3), fallback, settings)
        self.number = 0
        self.seen = OnlineFit()
        self.backend = shell.world.backend
        self.kinds = KindNames(self.seen, lambda: self.backend.job_types)

    def once(self, fails: Exception | None = None) -> None:
        observed = self.backend.observe()
        assert observed is not None
        state, trigger = self.kinds.named_by_kind(observed[0]), observed[1]
        turn = Turn(self.number, state, trigger, self.decider)
        self.recorder.begin(turn)
        if fails is not None:
            proposal = Proposal(None, None, 0.0, fails)
        else:
            proposal = Proposal(*decide_recorded(self.candidate.policy, state, trigger), 0.0)
        turn.guarded = self.guard.decide(proposal, state, trigger)
        self.recorder.write(turn, None)
        beliefs = self.candidate.beliefs
        snapshot = None if beliefs is None else beliefs.snapshot()
        saved = {"acting_beliefs": snapshot, "beliefs": self.seen.snapshot()}
        write_json(self.shell.folder / "agent.json", saved)
        self.number += 1
        turn.progress = progress = self.kinds.renamed(self.backend.apply(turn.guarded.decision))
        self.candidate.policy.observe(progress)
        self.seen.introduce(state.jobs)
        self.seen.observe(progress)
        self.recorder.on_observed(turn, ["policy"])


def submit(shell: Shell, name: str, *words: str) -> None:
    said = shell.type("submit", "--name", name, "--epochs", "200", *words, "--", "python", "train.py")
    assert said.code == 0, said.err
