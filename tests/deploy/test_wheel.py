"""What is installed where: the wheel, what each extra suffices for, and a job's script with the oldest packages."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from cluster_agent.cli import PROGRAM, app
from foundation.command_line import run
from foundation.program_life import EXTRA_OF

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROGRAMS = {
    "cluster-agent": "cluster_agent.cli",
    "elastic-run": "elastic_runtime.cli",
    "global-learner": "global_learner.cli",
    "policy-net": "policy_net.cli",
    "policyctl": "global_learner.policyctl.cli",
}
SUFFICES = {
    "": ["elastic_runtime"],
    "agent": ["cluster_agent.agent", "cluster_agent.backends.local.backend", "elastic_runtime.coordinator.__main__"],
    "kubernetes": ["cluster_agent.agent", "cluster_agent.backends.kubernetes.backend"],
    "learner": ["global_learner.service.server", "global_learner.policyctl.cli"],
    "lab": ["policy_net.laboratory.commands.train", "policy_net.laboratory.report.page", "policy_net.gym"],
}
"""What an extra is for can be imported with its packages alone."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    assert run(app, PROGRAM, ["wheel", "--out", str(folder)]) == 0
    (path,) = folder.glob("*.whl")
    return path


def names(extra: str) -> set[str]:
    """Distributions that an extra brings, with what these need."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in _stated(extra)]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": each}) for each in (requirement.extras or {""})
            ):
                waiting.append(needed)
    return found


def _stated(extra: str) -> list[str]:
    found = list(PROJECT["dependencies"])
    for text in PROJECT["optional-dependencies"].get(extra, []):
        inner = Requirement(text)
        found += [each for name in inner.extras for each in _stated(name)] if inner.name == "fedl2" else [text]
    return found


def site_of(extra: str, folder: Path) -> Path:
    """A folder with the packages of an extra, of those that are installed here, and nothing else."""
    for name in names(extra):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or []:
            top = Path(str(file)).parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(""))) / top)
    return folder


def bare(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_it_holds_every_module_and_its_record_holds_their_digests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        record = dict(line.split(",", 1) for line in archive.read(about).decode().splitlines())
        assert set(record) == set(archive.namelist())
        for name in set(record) - {about}:
            data = archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert record[name] == f"sha256={digest},{len(data)}"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    packages = {
        name.rstrip("*")
        for name in ("foundation*", "policy_net*", "cluster_agent*", "global_learner*", "elastic_runtime*")
    }
    assert {name for name in tracked.stdout.splitlines() if name.split("/")[0] in packages} <= set(record)


def test_the_same_installation_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert run(app, PROGRAM, ["wheel", "--out", str(tmp_path)]) == 0
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, PROGRAM, ["wheel", "--out", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none'}" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.parametrize("extra", SUFFICES)
def test_an_extra_brings_what_it_is_for(extra: str, tmp_path: Path) -> None:
    site = site_of(extra, tmp_path)
    for module in SUFFICES[extra]:
        done = bare(site, f"import {module}")
        assert done.returncode == 0, (module, done.stderr)
    for program, module in PROGRAMS.items():
        done = bare(site, f"import sys; sys.argv = ['{program}', '--help']\n{_begin(program, module)}")
        if extra:
            assert (done.returncode, "Usage:" in done.stdout) == (0, True), done.stderr
        else:
            wanted = {"global-learner": "learner", "policy-net": "lab"}.get(program, "agent")
            assert done.returncode == 2
            assert done.stderr == (
                f"{program}: needs the package typer, which is not installed: pip install 'fedl2[{wanted}]'\n"
            )


def _begin(program: str, module: str) -> str:
    return f"from foundation.program_life import begin\nbegin({program!r}, {module!r})"


@pytest.mark.heavy
def test_a_command_names_the_extra_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "learner.yaml").write_text("state_dir: state\ninitial_policy: policy.safetensors\n", encoding="utf-8")
    site = tmp_path / "site"
    site.mkdir()
    words = ["global-learner", "serve", "--config", str(tmp_path / "learner.yaml")]
    done = bare(site_of("agent", site), f"import sys; sys.argv = {words!r}\n{_begin(words[0], 'global_learner.cli')}")
    assert done.returncode == 2
    assert "pip install 'fedl2[learner]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_extras_that_are_named_bring_the_package() -> None:
    for package, extra in EXTRA_OF.items():
        assert package in names(extra)
        assert package not in names("agent")


@pytest.mark.heavy
def test_no_agent_brings_torch() -> None:
    for extra in ("", "agent", "kubernetes", "learner"):
        assert not {"torch", "matplotlib", "optuna"} & names(extra)


SCRIPT = """
import elastic_runtime as elastic, torch, numpy, google.protobuf, grpc, sys
from torch.utils.data import TensorDataset
print("with", numpy.__version__, google.protobuf.__version__, grpc.__version__, elastic.__file__)
torch.manual_seed(0)
inputs = torch.randn(256, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
model = torch.nn.Linear(8, 1)
job = elastic.join(model, elastic.SGD(lr=0.05, momentum=0.9), data, global_batch=32, epochs=12, seed=0)
for batch in job:
    features, targets = batch.data
    loss = torch.nn.functional.mse_loss(model(features), targets)
    job.step(loss)
if job.finished and job.is_first:
    print(f"loss {loss.item():.4f}")
"""


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_script_trains_with_the_oldest_packages(wheel: Path, tmp_path: Path) -> None:
    oldest = os.environ.get("FEDL2_OLDEST", "")
    if not oldest:
        pytest.skip("FEDL2_OLDEST names no folder with the oldest packages; .ci/run makes one")
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True, timeout=60)
    (packages,) = env.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The script's own torch: that of the tests, with what it needs.
    own = tmp_path / "own"
    own.mkdir()
    for name in (
        "torch",
        "torchgen",
        "functorch",
        "sympy",
        "mpmath",
        "networkx",
        "filelock",
        "jinja2",
        "markupsafe",
        "fsspec",
    ):
        (own / name).symlink_to(Path(torch.__file__).parents[1] / name)
    (packages / "oldest.pth").write_text(f"{oldest}\n{own}\n", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    line = [sys.executable, "-m", "elastic_runtime.cli", f"--interpreter={env / 'bin' / 'python'}", "--workers", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*line, "--folder", str(tmp_path / "jobs"), str(script)],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert f"with 1.26.4 4.25.9 1.64.3 {packages}" in done.stdout
    assert "loss 0.0" in done.stdout
