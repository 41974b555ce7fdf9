"""The cluster as a process of its own, as demonstrations start it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config

HERE = Path(__file__).parent


def start(*words: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "apiserver", *words]
    return subprocess.Popen(program, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = start(f"--kubeconfig={kubeconfig}", "--nodes=3", "--kubelet=pretend")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("cluster of 3 nodes at https://127.0.0.1:")
        assert kubeconfig.stat().st_mode & 0o77 == 0
        configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration)
        client = ApiClient(configuration)
        answer = client.call_api(
            "GET",
            f"{configuration.host}/api/v1/nodes",
            {"Authorization": configuration.get_api_key_with_prefix("BearerToken")},
        )
        assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)
        assert (process.returncode, said[1]) == (0, "")
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("image", ["trainer", "trainer="])
def test_an_image_without_a_command_is_refused(tmp_path: Path, image: str) -> None:
    process = start(f"--kubeconfig={tmp_path / 'x'}", f"--image={image}")
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2
    assert f"--image {image}: say NAME=COMMAND" in said
