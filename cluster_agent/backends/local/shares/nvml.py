"""GPUs that this machine has, as NVIDIA's management library names them; none without its bindings or its driver.

Names are the devices' UUIDs: unlike indices, they mean the same device to every process, whatever
`CUDA_VISIBLE_DEVICES` the agent itself was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

import structlog

_log = structlog.get_logger()


def gpus_here(environment: Mapping[str, str], nvml: ModuleType | None = None) -> tuple[str, ...]:
    """UUIDs of the GPUs that jobs could have, in the driver's order.

    Args:
        environment: `CUDA_VISIBLE_DEVICES` narrows them down, as for any program.
        nvml: the bindings; loaded unless given.
    """
    try:
        library = import_module("pynvml") if nvml is None else nvml
    except ImportError:
        return ()
    try:
        library.nvmlInit()
    except library.NVMLError as error:  # no driver, or none of its devices may be used
        _log.info("no-gpus", reason=str(error))
        return ()
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
        found = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    except library.NVMLError as error:
        _log.warning("gpus-not-listed", reason=str(error))
        return ()
    finally:
        library.nvmlShutdown()
    return tuple(_visible(found, environment.get("CUDA_VISIBLE_DEVICES")))


def _visible(found: list[str], stated: str | None) -> list[str]:
    """Source: CUDA's rules: indices or beginnings of UUIDs, up to the first that names no device."""
    if stated is None:
        return found
    chosen: list[str] = []
    for word in (part.strip() for part in stated.split(",")):
        if word.isdigit() and int(word) < len(found):
            chosen.append(found[int(word)])
            continue
        match = [gpu for gpu in found if word and gpu.startswith(word)]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return list(dict.fromkeys(chosen))


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode("ascii") if isinstance(value, bytes) else value
