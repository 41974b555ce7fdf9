"""The project's own files agree with each other."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from docs_pages import ROOT
from packaging.requirements import Requirement
from packaging.version import Version


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_has_an_exact_version_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {_normal(name): version for name, version in _pins().items()}
    extras = project["optional-dependencies"]
    brought = ("all", "kubernetes", "lab", "learner", "agent", "dev")
    for text in (*project["dependencies"], *(text for extra in brought for text in extras[extra])):
        requirement = Requirement(text)
        if requirement.name == "fedl2":
            assert requirement.extras <= set(brought)
            continue
        version = pins[_normal(requirement.name)]
        assert Version(version) in requirement.specifier, f"{text}: constraints.txt has {version}"


def test_tests_run_with_the_versions_that_are_pinned() -> None:
    for name in ("torch", "numpy", "grpcio", "protobuf", "flwr", "typer"):
        assert importlib.metadata.version(name).partition("+")[0] == _pins()[name], f"{name}: run `make setup`"


def test_the_makefile_installs_the_pinned_torch() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"TORCH_VERSION := {_pins()['torch']}" in makefile


def test_ci_runs_the_checks_and_the_tests() -> None:
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert "make check" in lines
    assert "TEST_OPTIONS=--ignore=tests/docs make test" in lines, "those are checked already"
    assert "make test-long" in lines, "no test is left out"


def test_the_committed_stubs_are_what_the_proto_generates(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", "policy_net/exchange", *outputs, "fleet.proto"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    for path in sorted(tmp_path.iterdir()):
        committed = (ROOT / "policy_net/exchange/generated" / path.name).read_text(encoding="utf-8")
        generated = path.read_text(encoding="utf-8")
        generated = generated.replace(
            "\nimport fleet_pb2 as", "\nfrom policy_net.exchange.generated import fleet_pb2 as"
        )
        generated = re.sub(
            r"^ # This class is part of an EXPERIMENTAL API\..*?(?=^class \w+Stub|\Z)", "", generated, flags=re.M | re.S
        )
        assert committed == generated, f"{path.name} is old: run `make proto`"
