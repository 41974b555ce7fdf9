"""The library of the twin: what is said and done where there is none that may be used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import make_spec, make_workload

from policy_net.domain import PolicyContext
from policy_net.laboratory.simulation import replay as covered
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.policy_kinds import load_policy
from policy_net.twin import library
from policy_net.twin.library import CORE, TwinUnavailable, load, notice, source_digest

ROOT = Path(__file__).parents[3]
JOBS = make_workload(*(make_spec(number, job_type="vgg-16") for number in range(3)))


def test_without_a_library_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(TwinUnavailable, match=r"was not built.*: set up again with a C compiler"):
        load(tmp_path, CORE)


def test_a_damaged_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_core.so").write_bytes(b"\x7fELF cut short")
    with pytest.raises(TwinUnavailable, match="cannot be loaded"):
        load(tmp_path, CORE)


@pytest.mark.skipif(notice() is not None, reason=str(notice()))
def test_a_library_of_other_sources_is_refused(tmp_path: Path) -> None:
    core = tmp_path / "core"
    shutil.copytree(CORE, core)
    assert source_digest(core) == source_digest()
    (core / "engine.c").write_text((core / "engine.c").read_text(encoding="utf-8") + "\n/* newer */\n")
    with pytest.raises(TwinUnavailable, match="is of other sources"):
        load(CORE.parent, core)


def test_without_a_library_the_reference_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "notice", lambda: "the compiled twin was not built")
    policy = load_policy("set", PolicyContext())
    environment, speeds = Environment(2), default_speeds()
    assert covered.uncovered(JOBS, environment, policy, speeds) == "the compiled twin was not built"
    result = replay(JOBS, environment, policy, speeds)
    assert result.to_json()["completed"] == 3
    assert result.slot_decide_p99_ms is not None  # only the reference times decisions


@pytest.mark.skipif(notice() is not None, reason=str(notice()))
def test_what_the_twin_replays_has_no_times_of_decisions() -> None:
    result = replay(JOBS, Environment(2), load_policy("set", PolicyContext()), default_speeds())
    assert (result.slot_decide_p99_ms, result.inference_p50_us) == (None, None)
    assert result.to_json()["completed"] == 3


def test_without_a_compiler_the_package_is_built_all_the_same(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(CORE, tmp_path / "policy_net" / "twin" / "core")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'building extension "policy_net.twin._core" failed' in done.stderr
    assert not list((tmp_path / "policy_net" / "twin").glob("*.so"))


def test_the_notice_is_none_or_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise TwinUnavailable("no library")

    monkeypatch.setattr(library, "library", missing)
    assert library.notice() == "no library"
