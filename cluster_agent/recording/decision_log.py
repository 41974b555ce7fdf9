"""The decision log: a record of every decision, complete enough to make it again, one JSON object a line.

A decision follows from the state, the policy's file, the seed and number, and what the policy believes of speeds. A
checkpoint holds the first of these beliefs whole; every decision's line holds what they have been shown since the
decision before, and the digest that they had when it was made. So beliefs can be followed again from any
checkpoint, and every step of that be checked. How a line is sealed stands in `policy_net.exchange.state_codec`.

The current file is `decisions.jsonl`; when it grows beyond its bound it becomes `decisions-NNNNNN.jsonl`, numbered on,
and the oldest of those are removed. Every file begins with a checkpoint, and so stands for itself. What is written is
written in one piece, so an agent killed meanwhile leaves at most one torn line at the end, which a reader passes over;
the next agent closes it and goes on with a checkpoint. An agent killed between a line and its snapshot makes a decision
of that number again: of two lines with the same number, the later one counts.

The log names a policy by its digest. The newest few policy files are kept beside it; older ones are in the learner's
store, which names its files alike.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any

from cluster_agent.active_policy import Turn
from cluster_agent.recording.log_reading import CURRENT, closed_files, number_of
from cluster_agent.recording.state_files import PRIVATE_FOLDER, write_bytes
from cluster_agent.settings import PolicySettings
from foundation.files import PRIVATE, open_ordinary
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.state_codec import (
    CHECKPOINT_START,
    DECISION_START,
    canonical_json,
    encode_decision,
    encode_progress,
    encode_state,
    sealed,
)
from policy_net.policy import Samples, SchedulerPolicy
from policy_net.throughput.beliefs import beliefs_of

_DIGEST_LENGTH = 64


LOG_FORMAT = 2
"""Raised whenever the meaning of a line changes; the first had no checkpoints."""


class CheckpointReason(StrEnum):
    """Why there is a checkpoint here."""

    START = "start"
    """An agent started."""
    FILE = "file"
    """A new file began."""
    POLICY = "policy"
    """Another policy became active, with the beliefs that it starts from."""
    BELIEFS = "beliefs"
    """Beliefs were changed by something else than reports, such as what the fleet has told."""
    GAP = "gap"
    """Something before was not written, or a policy could not be looked into."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How things stand right before a decision.

    Attributes:
        settings: how the active policy is configured to decide.
        busy: whether it was still at an earlier decision, so that its beliefs could not be read.
        beliefs: `Beliefs.checkpoint` of the active policy; None if it has none, or was busy.
        challenger: `policy`, `busy` and `beliefs` of the challenger; not in the line if there is none.
    """

    number: int
    wall_time_seconds: float
    policy: Mapping[str, object]
    settings: Mapping[str, object]
    busy: bool
    beliefs: Mapping[str, Any] | None
    fallback: str
    fallback_beliefs: Mapping[str, Any] | None
    program: str
    challenger: Mapping[str, Any] | None = None

    @property
    def is_blind(self) -> bool:
        """Whether a policy's beliefs could not be read."""
        return self.busy or (self.challenger is not None and bool(self.challenger["busy"]))

    def to_line(self, reason: CheckpointReason) -> bytes:
        """The line, with its end."""
        rest = {"format": LOG_FORMAT} | {each.name: getattr(self, each.name) for each in fields(self)}
        challenger = rest.pop("challenger")
        rest |= {} if challenger is None else {"beside": challenger}
        return sealed(f'{CHECKPOINT_START}"{reason.value}",{canonical_json(rest)[1:]}')


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, as it is logged.

    Attributes:
        number: counts the agent's decisions from 0, over all of its lives.
        previous_reward: of the interval that ended with this decision; None before the first.
        asked: whether the policy was asked at all; not while it is still at an earlier decision.
        beliefs_digest: of what the policy believed before it decided; None if it believes nothing, or was busy.
        observed: what jobs did since the decision before; a checkpoint right before this line has seen it already.
        observed_by: whose beliefs were shown it: `policy`, `fallback`, `beside`, or nobody's.
        rollout: in which it was made, whose turn it was, and in which block; None outside rollouts.
        challenger: what the challenger would have done at the decision before (it is asked while the interval lasts).
        detail: why the decision is not the policy's own, in a line (the line's `guard_detail`); empty where it is.
    """

    number: int
    wall_time_seconds: float
    state: ClusterState
    trigger: Trigger
    policy: str
    version: int
    head_step: int
    digest: str
    seed: int
    mode: str
    exploration: float
    decision: Decision
    samples: Samples | None
    interventions: tuple[str, ...]
    decide_seconds: float
    previous_reward: float | None
    asked: bool = True
    beliefs_digest: str | None = None
    observed: tuple[Progress, ...] = ()
    observed_by: tuple[str, ...] = ()
    rollout: Mapping[str, Any] | None = None
    challenger: Mapping[str, Any] | None = None
    detail: str = ""

    def to_line(self) -> bytes:
        """The line, with its end."""
        state = canonical_json(encode_state(self.state))
        names = [each.name for each in fields(self) if each.name not in _WRITTEN_OTHERWISE]
        rest: dict[str, object] = {name: getattr(self, name) for name in names}
        rest |= {
            "state_digest": hashlib.sha256(state.encode()).hexdigest(),
            "trigger": self.trigger.value,
            "interventions": list(self.interventions),
            "previous_reward": _or_null(self.previous_reward),
            "observed": [encode_progress(entry) for entry in self.observed],
            "observed_by": list(self.observed_by),
            **encode_samples(self.samples),
        } | encode_decision(self.decision)
        more = {"rollout": self.rollout, "beside": self.challenger}
        rest |= {name: dict(value) for name, value in more.items() if value is not None}
        rest |= {"guard_detail": self.detail} if self.detail else {}
        # The state is most of the line: its canonical text is made once, for the digest and for the line.
        return sealed(f"{DECISION_START}{state},{canonical_json(rest)[1:]}")


_WRITTEN_OTHERWISE = ("state", "decision", "samples", "rollout", "challenger", "detail")
"""Fields of a decision that its line has under other names, if at all."""


def encode_samples(samples: Samples | None) -> dict[str, object]:
    """A decision's choices and their probabilities, as JSON values."""
    if samples is None:
        return {"actions": None, "behaviour": None}
    behaviour = [_or_null(value) for value in samples.behaviour_M.tolist()]
    return {"actions": samples.actions_M.tolist(), "behaviour": behaviour}


def _or_null(value: float | None) -> float | None:
    """JSON has no NaN; a figure that is none is logged as null, and the intervention says why."""
    return value if value is not None and math.isfinite(value) else None


class DecisionLog:
    """Appends records to the current file and rotates it; one writer a folder."""

    def __init__(self, folder: Path, max_bytes: int, keep: int, keep_policies: int = 32) -> None:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep = keep
        self._path = folder / CURRENT
        self.archive = PolicyArchive(folder / "policies", keep_policies)
        # A file of an earlier version cannot be gone on with: a file stands for itself.
        self._foreign = _begins_otherwise(self._path)
        self._stream = self._open()
        self._torn = False
        self._due: CheckpointReason | None = CheckpointReason.START

    def append(self, record: DecisionRecord, checkpoint: Checkpoint, reason: CheckpointReason | None = None) -> bool:
        """Write one record; what was written survives the death of this process. True if the checkpoint was, too.

        The checkpoint is written where a file or a life of the agent begins, where a line was lost, and for any reason.

        Raises:
            OSError: it could not be written whole; the next one begins on a line of its own.
        """
        line = record.to_line()
        reason = self._due or reason
        head = b"" if reason is None else checkpoint.to_line(reason)
        size = self._stream.tell()
        if size > 0 and (self._foreign or size + self._torn + len(head) + len(line) > self._max_bytes):
            self._rotate()
            size = 0
            head = head or checkpoint.to_line(CheckpointReason.FILE)
        data = (b"\n" if self._torn and size else b"") + head + line
        self._torn, self._due = True, CheckpointReason.GAP
        if self._stream.write(data) < len(data):
            raise OSError(errno.ENOSPC, f"{self._path} takes no more")
        self._torn, self._due = False, None
        return bool(head)

    def close(self) -> None:
        """Close the current file."""
        self._stream.close()

    def _open(self) -> FileIO:
        stream = FileIO(open_ordinary(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+")
        os.fchmod(stream.fileno(), PRIVATE)  # an earlier agent made it for others to read
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
            torn = stream.read(1) != b"\n"
            stream.seek(0, os.SEEK_END)
            if torn:
                stream.write(b"\n")
        return stream

    def _rotate(self) -> None:
        closed = closed_files(self._folder)
        number = 1 + (number_of(closed[-1]) if closed else 0)
        self._path.rename(self._folder / f"decisions-{number:06d}.jsonl")
        full, self._stream = self._stream, self._open()
        full.close()
        self._foreign = False
        for path in closed_files(self._folder)[: -self._keep]:
            path.unlink()


def _begins_otherwise(path: Path) -> bool:
    """Whether there is a file that does not begin with a checkpoint."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(CHECKPOINT_START))
    except FileNotFoundError:
        return False
    return start not in (b"", CHECKPOINT_START.encode())


class PolicyArchive:
    """A folder of `<sha256>.safetensors`; other files in it are let alone."""

    def __init__(self, folder: Path, keep: int) -> None:
        """`keep` is how many files stay: those that became active last."""
        self._folder = folder
        self._keep = keep

    def add(self, digest: str, data: bytes) -> None:
        """Keep a file, or note that it is active again.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        if self._keep == 0:
            return
        path = self._folder / f"{digest}.safetensors"
        if path.exists():
            os.utime(path)
        else:
            write_bytes(path, data)
        files = [(file.stat().st_mtime_ns, file) for file in self._folder.iterdir() if _is_kept(file)]
        for _, file in sorted(files)[: -self._keep]:
            file.unlink(missing_ok=True)


def _is_kept(path: Path) -> bool:
    return path.suffix == ".safetensors" and len(path.stem) == _DIGEST_LENGTH


class DecisionRecorder:
    """Writes one agent's log; used by the loop's thread alone.

    Deciding changes beliefs (a fit that was due is made, a type is introduced), so that they are captured before the
    policy is asked, and written once it has answered.
    """

    def __init__(
        self,
        log: DecisionLog,
        fallback: SchedulerPolicy,
        settings: PolicySettings,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy_settings = settings
        self._wall_clock = wall_clock
        self._log = log
        self._fallback = fallback
        self._settings = settings.model_dump(mode="json", exclude={"initial", "acting"})
        self._program = importlib.metadata.version("fedl2")
        self._due: CheckpointReason | None = None
        self._blind = False
        self._last: Turn | None = None
        self._digests_shown: Mapping[str, str] = {}
        self._checkpoint: Checkpoint

    def begin(self, turn: Turn) -> None:
        """Capture what is believed before a decision."""
        if self._last is not None and self._last.progress is not None and self._last.observed_by is None:
            self._due = CheckpointReason.GAP  # nobody knows what beliefs were shown
        before: dict[str, dict[str, Any]] = {}
        digests: dict[str, str | None] = {}
        for role, decider in turn.deciders.items():
            busy = decider.busy
            beliefs = None if busy else beliefs_of(decider.candidate.policy)
            digest = digests[role] = None if beliefs is None else beliefs.digest()
            if digest is not None and self._digests_shown.get(role, digest) != digest:
                self._due = CheckpointReason.BELIEFS
            before[role] = {
                "policy": asdict(decider.candidate.identity),
                "busy": busy,
                "beliefs": None if beliefs is None else beliefs.checkpoint(),
            }
        if turn.fresh:
            self._due = CheckpointReason.POLICY
        turn.digests = digests
        fallback_beliefs = beliefs_of(self._fallback)
        self._checkpoint = Checkpoint(
            number=turn.number,
            wall_time_seconds=self._wall_clock(),
            **before["policy"],
            settings=self._settings,
            fallback=self._fallback.name,
            fallback_beliefs=None if fallback_beliefs is None else fallback_beliefs.checkpoint(),
            program=self._program,
            challenger=before.get("beside"),
        )
        if self._blind and not self._checkpoint.is_blind:
            self._due = CheckpointReason.GAP

    def write(self, turn: Turn, previous_reward: float | None) -> None:
        """Log a decision, with what came of the one before.

        Raises:
            OSError: it could not be written; the log goes on with a checkpoint.
        """
        identity, guarded, settings = turn.identity, turn.guarded, self._policy_settings
        last, self._last, self._digests_shown = self._last, turn, {}
        observed_by = () if last is None or last.observed_by is None else last.observed_by
        record = DecisionRecord(
            number=turn.number,
            wall_time_seconds=self._wall_clock(),
            state=turn.state,
            trigger=turn.trigger,
            policy=identity.name,
            version=identity.version,
            head_step=identity.head_step,
            digest=identity.digest,
            seed=settings.seed,
            mode=settings.mode,
            exploration=settings.exploration,
            decision=guarded.decision,
            samples=guarded.samples,
            interventions=tuple(intervention.value for intervention in guarded.interventions),
            decide_seconds=guarded.decide_seconds,
            previous_reward=previous_reward,
            asked=guarded.asked,
            beliefs_digest=turn.digests["policy"],
            observed=() if last is None or last.observed_by is None else tuple(last.progress or ()),
            observed_by=observed_by,
            rollout=turn.rollout,
            challenger=None if last is None else _challenger_of(last),
            detail=guarded.detail,
        )
        if not self._log.append(record, self._checkpoint, self._due):
            return
        self._due, self._blind = None, self._checkpoint.is_blind
        for decider in turn.deciders.values():
            if decider.candidate.file is not None:
                self._log.archive.add(decider.candidate.identity.digest, decider.candidate.file)

    def on_observed(self, turn: Turn, shown: Sequence[str]) -> None:
        """Note whose beliefs were shown what jobs did: those of the roles in `shown`, and the fallback's."""
        policies = {role: decider.candidate.policy for role, decider in turn.deciders.items() if role in shown}
        policies["fallback"] = self._fallback
        beliefs = {role: beliefs_of(policies[role]) for role in ("policy", "fallback", "beside") if role in policies}
        self._digests_shown = {
            role: each.digest() for role, each in beliefs.items() if each is not None and role != "fallback"
        }
        turn.observed_by = tuple(role for role, each in beliefs.items() if each is not None)  # last: a failure is a gap

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def _challenger_of(turn: Turn) -> dict[str, Any] | None:
    """What a decision's challenger would have done, for the line of the next decision; None if it was not asked."""
    if turn.challenger is None or turn.challenged is None:
        return None
    identity = turn.challenger.candidate.identity
    return turn.challenged.to_json() | {
        "number": turn.number,
        "policy": identity.name,
        "version": identity.version,
        "digest": identity.digest,
        "beliefs_digest": turn.digests["beside"],
    }
