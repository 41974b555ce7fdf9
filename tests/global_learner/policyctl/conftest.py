"""An admin at a real learner with certificates: what is typed, and what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def as_admin(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    """Types a `policyctl` line as the learner's admin, in an empty folder; exit code, standard output and error."""
    learner = LearnerProcess(tmp_path, identity={"names": ["127.0.0.1"], "enroll_port": 0})
    learner.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDL2_LEARNER", learner.address)
    monkeypatch.setenv("FEDL2_CERT", str(learner.state_dir / "identity" / "admin.pem"))

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    try:
        yield typed
    finally:
        learner.close()
