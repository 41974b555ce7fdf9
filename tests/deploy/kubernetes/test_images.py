"""The images: Dockerfiles that keep to rules, and packages that suffice for what runs in them, and are no more."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from bare_site import REMOVED, ROOT, distributions, installed_files, make_site, requirements, run_bare
from packaging.requirements import Requirement
from rendered import CHART, DEPLOY, by_helm, by_kustomize, pod_spec

IMAGES = ("agent", "trainer", "learner", "runtime")
EXTRAS = {"agent": ("privacy",), "trainer": ("privacy",), "learner": ("postgres", "privacy")}
"""Of the project, which settings of the program need, and which nobody can install into an image that runs."""
SIMULATING = ("agent", "trainer", "learner")
"""With the compiled twin; a job's tasks simulate nothing."""
COMPILER = "apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -r /var/lib/apt/lists/*"
INSTRUCTIONS = {"FROM", "ARG", "WORKDIR", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_BYTES = 300 * 10**6
each_image = pytest.mark.parametrize("image", IMAGES)


def instructions(image: str) -> list[tuple[str, str]]:
    text = (DEPLOY / "images" / f"{image}.Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.partition(" ") for line in joined.splitlines()]
    return [(word, rest.strip()) for word, _, rest in found]


def last_stage(image: str) -> list[tuple[str, str]]:
    found = instructions(image)
    return found[max(number for number, (word, _) in enumerate(found) if word == "FROM") :]


def test_every_dockerfile_is_looked_at() -> None:
    assert {path.name for path in (DEPLOY / "images").glob("*Dockerfile*")} == {f"{name}.Dockerfile" for name in IMAGES}
    assert {path.name for path in (DEPLOY / "images").glob("*.txt")} == {f"{name}-requirements.txt" for name in IMAGES}


@each_image
def test_a_dockerfile_has_known_instructions_and_downloads_nothing_by_itself(image: str) -> None:
    found = instructions(image)
    assert {word for word, _ in found} <= INSTRUCTIONS, "no ADD, no VOLUME, no EXPOSE"
    assert found[0][0] == "FROM"
    for word, rest in found:
        if word == "RUN" and rest != COMPILER:
            assert not re.search(r"\b(curl|wget|sudo|apt|apt-get|git)\b|https?://", rest)
        if word in ("ENV", "ARG"):
            assert not re.search(r"(?i)token|secret|password", rest)


@each_image
def test_it_is_built_of_one_exact_base_in_stages(image: str) -> None:
    stages = [rest for word, rest in instructions(image) if word == "FROM"]
    assert len(stages) == 2
    (base,) = {stage.split(" ")[0] for stage in stages}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)
    assert not [rest for word, rest in last_stage(image) if word == "RUN"], "pip and its caches stay behind"


@each_image
def test_what_simulates_has_a_compiler_while_it_is_built_and_nothing_else_of_the_distribution(image: str) -> None:
    said = [rest for word, rest in instructions(image) if word == "RUN"]
    assert said.count(COMPILER) == (image in SIMULATING)
    copied = " ".join(rest for word, rest in instructions(image) if word == "COPY")
    assert ("setup.py" in copied.split()) == (image in SIMULATING), "which is what compiles"


@each_image
def test_it_runs_as_nobody_a_program_that_there_is(image: str) -> None:
    last = dict(last_stage(image))
    user, _, group = last["USER"].partition(":")
    assert int(user) == int(group) > 1000
    (program,) = json.loads(last["ENTRYPOINT"])
    assert program in PROJECT["scripts"]
    environment = dict(word.split("=", 1) for word in shlex.split(last["ENV"]))
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"


@each_image
def test_what_it_copies_is_there_and_is_sent_to_the_builder(image: str) -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    assert "*" in ignore
    copied = [shlex.split(rest) for word, rest in instructions(image) if word == "COPY"]
    sources = [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]
    assert {"constraints.txt", "pyproject.toml", "foundation", f"deploy/images/{image}-requirements.txt"} <= set(
        sources
    )
    for source in sources:
        assert (ROOT / source).exists()
        assert any(source == each or source.startswith(f"{each}/") for each in sent)
    packages = {name.rstrip("*") for name in _packages()}
    assert packages <= set(sources), "pip installs all of them"


def _packages() -> list[str]:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[str] = stated["tool"]["setuptools"]["packages"]["find"]["include"]
    return found


@each_image
def test_it_asks_for_the_projects_ranges_and_pip_takes_the_pinned_versions(image: str) -> None:
    extras = [text for name in EXTRAS.get(image, ()) for text in PROJECT["optional-dependencies"][name]]
    brought = [
        text for name in ("agent", "kubernetes", "learner", "lab") for text in PROJECT["optional-dependencies"][name]
    ]
    # An extra's range is the narrower one.
    stated = [Requirement(text) for text in (*PROJECT["dependencies"], *brought, *extras)]
    ranges = {each.name: (each.specifier, each.extras) for each in stated}
    asked = requirements(image)
    for requirement in asked:
        assert (requirement.specifier, requirement.extras) == ranges[requirement.name]
    assert {Requirement(text).name for text in extras} <= {requirement.name for requirement in asked}
    installs = [rest for word, rest in instructions(image) if word == "RUN" and "-m pip " in rest]
    assert all("-c constraints.txt" in rest or "--no-deps ." in rest for rest in installs)
    assert all("--no-compile" in rest and "--no-cache-dir" in rest for rest in installs)


def test_what_is_removed_here_is_what_the_dockerfile_removes() -> None:
    said = " ".join(rest for word, rest in instructions("agent") if word == "RUN")
    assert "-type d -name tests -prune -exec rm -r {} +" in said
    assert "site-packages/kubernetes/aio" in said
    assert REMOVED == ("tests/*", "*/tests/*", "kubernetes/aio/*")


def test_the_agents_packages_stay_below_300_megabytes_without_pytorch() -> None:
    assert not {"torch", "flwr", "matplotlib"} & set(distributions("agent"))
    packages = sum(source.stat().st_size for _, source in installed_files("agent"))
    own = sum(
        path.stat().st_size
        for name in _packages()
        for path in (ROOT / name.rstrip("*")).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    assert 100 * 10**6 < packages + own < MOST_BYTES


IMPORTED = re.compile(r'-I -c "import ([^"]+)"')


def built(image: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the last instruction of an image's first stage says, where the instructions before have done their work.

    The packages are those that are installed here; the project is copied and built as the Dockerfile says.

    Args:
        environment: of the project's build.
    """
    context, place = folder / "src", folder / "fedl2"
    venv.create(place, with_pip=False)
    site = make_site(image, next(place.glob("lib/python*/site-packages")), with_project=False)
    for word, rest in instructions(image):
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = shlex.split(rest)
            for source in sources:
                _copy(ROOT / source, context / target / (source if target == "./" else ""))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--no-build-isolation"]
    command += ["--no-index", "--disable-pip-version-check", "--target", str(site), "."]
    subprocess.run(command, cwd=context, env={**os.environ, **environment}, timeout=240, check=True)
    check = [rest for word, rest in instructions(image) if word == "RUN"][-1]
    words = ["sh", "-c", check.replace("/opt/fedl2/", f"{place}/")]
    return subprocess.run(words, cwd=context, capture_output=True, text=True, timeout=240, check=False)


def _copy(source: Path, target: Path) -> None:
    """As a builder is sent it."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target.parent / source.name)


def test_no_library_of_a_clone_is_sent_to_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignore[-2:] == ["**/__pycache__", "**/*.so"]


@pytest.mark.heavy
@pytest.mark.parametrize("image", ["agent", "learner"])
def test_the_twin_is_in_it_and_what_it_runs_has_bytecode(image: str, tmp_path: Path) -> None:
    done = built(image, tmp_path)
    assert done.returncode == 0, done.stderr
    (library,) = tmp_path.glob("fedl2/lib/python*/site-packages/policy_net/twin/_core*.so")
    assert library.stat().st_size < 10**6
    assert list(library.parent.glob("__pycache__/library.*.pyc")), "not in the folder where it was built"


@pytest.mark.heavy
def test_without_the_twin_it_is_not_built(tmp_path: Path) -> None:
    done = built("agent", tmp_path, CC="/bin/false")
    assert done.returncode != 0
    assert "TwinUnavailable" in done.stderr


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of each image, in which nothing is written."""
    return cache(lambda image: make_site(image, tmp_path_factory.mktemp(image)))


@pytest.mark.heavy
@each_image
def test_whatever_runs_in_it_is_imported_from_its_packages_alone(image: str, sites: Callable[[str], Path]) -> None:
    site = sites(image)
    (said,) = [found.group(1) for _, rest in instructions(image) if (found := IMPORTED.search(rest))]
    more = {
        "agent": "cluster_agent.jobs.commands, cluster_agent.cli, policy_net.policy_kinds",
        "trainer": "policy_net.learning.actor_critic",
        "learner": "global_learner.aggregation.flower, global_learner.policyctl.cli, policy_net.laboratory.simulation",
        "runtime": "elastic_runtime.server.__main__, elastic_runtime.worker.ranks.allreduce, elastic_runtime.cli",
    }
    done = run_bare(site, f"import {said}, {more[image]}")
    assert done.returncode == 0, done.stderr
    found = run_bare(site, "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)")
    assert (found.returncode == 0) == (image in ("trainer", "runtime"))
    assert run_bare(site, "import pytest").returncode != 0, "the folder is not what Python sees alone"


DECIDED = """
import json, sys
from policy_net.dl2.network import ActingNetwork, initial_weights
from policy_net.exchange.spec import PolicySpec
import numpy as np
spec = PolicySpec(jobs_per_batch=4, hidden=(32, 16))
network = ActingNetwork(spec, initial_weights(spec, 3))
states = np.random.default_rng(5).uniform(size=(20, spec.feature_count)).astype(np.float32)
said = []
for state in states:
    network.start(state)
    said.append(network.logits().tolist())
print(json.dumps(said))
assert "torch" not in sys.modules
"""


@pytest.mark.heavy
def test_a_network_acts_without_pytorch_as_pytorch_computes_it(sites: Callable[[str], Path]) -> None:
    import numpy as np
    import torch

    from policy_net.dl2.network import actor_logits, initial_weights, tensors_of
    from policy_net.exchange.spec import PolicySpec

    done = run_bare(sites("agent"), DECIDED)
    assert done.returncode == 0, done.stderr
    spec = PolicySpec(jobs_per_batch=4, hidden=(32, 16))
    states = np.random.default_rng(5).uniform(size=(20, spec.feature_count)).astype(np.float32)
    _, tensors = tensors_of(initial_weights(spec, 3), spec, requires_grad=False)
    computed = actor_logits(torch.from_numpy(states), tensors, spec).numpy()
    acted = np.array(json.loads(done.stdout))
    np.testing.assert_allclose(acted, computed, atol=1e-6)
    assert (acted.argmax(axis=1) == computed.argmax(axis=1)).all()


def test_installations_run_the_images_of_this_version() -> None:
    version = PROJECT["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == version
    for objects in (by_helm({}), by_kustomize("advice")):
        (container,) = pod_spec(objects)["containers"]
        assert container["image"] == f"fedl2-agent:{version}"
        assert "command" not in container, "the image's entry point"
