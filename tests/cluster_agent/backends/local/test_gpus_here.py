"""GPUs of this machine by NVIDIA's library, and the lines where there are none, or fewer than the operator says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.local.machine_shares import gpus_here, job_cores, this_node
from cluster_agent.errors import BadAgentConfig
from policy_net.domain import Node, Resources


class Library:
    """As much of NVIDIA's library as is asked for, with three devices."""

    class NVMLError(Exception):
        pass

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.open = 0

    def _may(self, call: str) -> None:
        if call == self.fails:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlInit(self) -> None:  # noqa: N802
        self._may("init")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._may("count")
        return 3

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:  # noqa: N802
        return f"GPU-{'abc'[handle]}".encode()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, ("GPU-a", "GPU-b", "GPU-c")),
        ("2,0", ("GPU-c", "GPU-a")),
        ("GPU-b", ("GPU-b",)),
        ("1,9,0", ("GPU-b",)),
        ("", ()),
        ("GPU-", ()),
    ],
)
def test_gpus_are_named_by_their_uuids_as_far_as_the_agent_may_see_them(
    visible: str | None, gpus: tuple[str, ...]
) -> None:
    library = Library()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_here(environment, library) == gpus  # type: ignore[arg-type]
    assert library.open == 0


@pytest.mark.parametrize("fails", ["init", "count"])
def test_without_a_driver_there_are_none(fails: str) -> None:
    library = Library(fails)
    assert gpus_here({}, library) == ()  # type: ignore[arg-type]
    assert library.open == 0


def test_the_real_library_says_what_there_is_or_that_there_is_nothing() -> None:
    assert all(gpu.startswith(("GPU-", "MIG-")) for gpu in gpus_here({}))
    assert gpus_here({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_jobs_have_what_there_is_less_what_the_operator_keeps_back(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("max 100000\n", encoding="ascii")
    settings = LocalBackendSettings(cpu_milli=4000, reserved_cpu_milli=500)
    assert this_node(settings, 2, limit).capacity == Resources(3500, 2)
    assert this_node(settings.model_copy(update={"gpus": 1}), 2, limit).capacity == Resources(3500, 1)
    with pytest.raises(BadAgentConfig, match=r"backend.gpus = 3: NVIDIA's library finds 2 here"):
        this_node(settings.model_copy(update={"gpus": 3}), 2, limit)
    with pytest.raises(BadAgentConfig, match="nothing is left of this machine"):
        this_node(settings.model_copy(update={"reserved_cpu_milli": 4000}), 0, limit)
    cores = job_cores(Node("n", Resources(500)))
    assert len(cores) == 1
