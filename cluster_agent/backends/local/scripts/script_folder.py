"""Folder of a job without parameter servers: what its launcher and the agent tell each other, each in files of its own.

JOBS/NAME/script.json     what to run; the agent writes it before each start
          target.json     the size that is wanted now; the agent's
          state.json      how the job is; its launcher's
          changes.json    its resizes and suspensions, over all launchers; its launcher's
          lock            held by the one launcher that looks after the job
          logs/TASK.log   what each worker wrote; TASK.log.1 before that
          progress.json, checkpoint.pt, stop    of a job that can be resized, see `RankFiles`
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.job_folder import holder_of, read_json, read_own, write_json
from elastic_runtime.protocol.plan import JobPhase
from foundation.text import parse_json, plain_line
from policy_net.settings import Section


class ScriptRecord(Section):
    """What to run.

    Attributes:
        elastic: whether the workers can stop after a common step, and others go on; else the size is fixed.
        gpus: of one worker; those of the job are listed in `gpu_file`.
        grace_seconds: from SIGTERM to SIGKILL.
        stop_seconds: for the checkpoint at which all workers stop; then they are ended without.
        restarts: failures in a row, without progress in between, after which the job fails.
        requeue: whether the script is told how often it was started before.
        interpreter: what stands before the script in place of `python`, which it then is not.
    """

    python: str
    script: Path
    args: tuple[str, ...] = ()
    workdir: Path
    elastic: bool
    gpus: int = Field(0, ge=0)
    gpu_file: Path | None = None
    checkpoint_seconds: float = Field(60.0, gt=0.0)
    grace_seconds: float = Field(10.0, ge=0.0)
    stop_seconds: float = Field(60.0, ge=0.0)
    restarts: int = Field(3, ge=0)
    requeue: bool = False
    interpreter: tuple[str, ...] | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """Of a worker."""
        words = (self.python,) if self.interpreter is None else self.interpreter
        return (*words, str(self.script), *self.args)


class Target(Section):
    """A size that is wanted, and under which name; 0 suspends."""

    request_id: str
    workers: int = Field(ge=0)


class ScriptChange(Section):
    """One change of a running job's size; times are Unix seconds, `ended_unix_seconds` is 0 while it is under way.

    Attributes:
        before: workers until then.
        workers: afterwards; 0: suspended.
        done: whether it came about; False once it has ended: the job was through before.
        stall_seconds: between the last step before and the first one after; of a suspension none.
    """

    request_id: str
    before: int = Field(ge=0)
    workers: int = Field(ge=0)
    began_unix_seconds: float
    ended_unix_seconds: float = 0.0
    done: bool = False
    stall_seconds: float = 0.0


class ScriptState(Section):
    """How a job is, as its launcher says.

    Attributes:
        workers: that run now; `target` are about to.
        request_id: of the newest target that was looked at.
        stall_seconds: between the last step before a resize and the first one after it, over all resizes.
        starts: of its script's processes, over all of the job's launchers.
        failures: of its script, over all of the job's launchers; `last_failure` is not the job's end.
    """

    phase: JobPhase
    workers: int = 0
    target: int = 0
    request_id: str = ""
    stall_seconds: float = 0.0
    failure: str = ""
    failures: int = 0
    last_failure: str = ""
    starts: int = 0

    @property
    def counted(self) -> dict[str, object]:
        """What goes on from one launcher to the next."""
        return self.model_dump(include={"stall_seconds", "failures", "last_failure", "starts"})


class ScriptChanges(Section):
    """Changes of a job's size."""

    changes: tuple[ScriptChange, ...] = ()


_FILES: Mapping[type[Section], str] = {
    ScriptRecord: "script.json",
    Target: "target.json",
    ScriptState: "state.json",
    ScriptChanges: "changes.json",
}
Kind = TypeVar("Kind", bound=Section)


class ScriptFolder:
    """One job's folder; makes nothing by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_folder = path / "logs"
        self.record_file = path / _FILES[ScriptRecord]

    def damage(self) -> str:
        """What of the folder keeps anybody from telling how the job is, in a line; empty if nothing does."""
        state_file = self.path / _FILES[ScriptState]
        try:
            holder_of(self.path)
            ScriptState.model_validate(parse_json(read_own(state_file)))
        except FileNotFoundError:
            return "" if self.record_file.exists() else f"{self.path}: the job's folder is gone, or empty"
        except OSError as error:
            return plain_line(f"{error.filename}: cannot be read: {error.strerror}")
        except ValueError:
            return plain_line(f"{state_file}: is no state of a job")
        except BadInput as error:
            return plain_line(str(error))
        return ""

    def make(self) -> None:
        """Make the folder, for its owner alone.

        Raises:
            OSError: it cannot be made.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log_folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, content: Section) -> None:
        """Replace the file of a kind of content.

        Raises:
            OSError: it cannot be written.
        """
        write_json(self.path / _FILES[type(content)], content.model_dump(mode="json"))

    def read(self, kind: type[Kind]) -> Kind | None:
        """The content of a kind; None if nobody has said anything that can be read."""
        try:
            return kind.model_validate(read_json(self.path / _FILES[kind]))
        except ValidationError:
            return None

    def record(self) -> ScriptRecord:
        """What to run.

        Raises:
            BadInput: it is no such thing.
        """
        try:
            return ScriptRecord.model_validate(read_json(self.record_file) or {})
        except ValidationError as error:
            raise BadInput(f"{self.record_file}: does not say what to run; the file was changed") from error

    def changes(self) -> tuple[ScriptChange, ...]:
        """Changes of the size while it ran, the newest ones, in their order."""
        found = self.read(ScriptChanges)
        return () if found is None else found.changes
