"""Accelerators by the names under which clusters give them out: which are counted as devices, as parts, or not at all.

The one table of an agent on Kubernetes and of the readers of recorded histories.
Source: the device plugins of NVIDIA (k8s-device-plugin, MIG and time slicing), AMD, Intel, Huawei (Ascend), Habana,
Google, AWS, Cambricon, Hygon, MetaX, Moore Threads, Iluvatar, Kunlunxin, Enflame, FuriosaAI, Rebellions, Graphcore;
HAMi, Volcano, Alibaba's gpushare and Tencent's gpu-manager for shared ones; slurm.conf(5) and gres.conf(5) for `shard`
and `mps`.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Counted(Enum):
    """What a number of a resource is a number of."""

    DEVICES = "devices"
    PARTS = "parts"
    """Of devices: slices of hardware or of time. Each counts as one, as nobody says how many make a device."""
    NOT = "not"
    """Memory, or shares of a device: no number of anything that a task could be given one of."""


MOST_ON_A_NODE = 128
"""Of devices; no machine has more. A larger number under the name of a device is of something else: memory, shares."""

_DEVICES = re.compile(
    r"(nvidia|amd|iluvatar|mthreads|metax-tech|vastaitech|birentech)\.com/gpu|iluvatar\.ai/gpu|birentech\.com/gpu"
    r"|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi\d?|google\.com/tpu|aws\.amazon\.com/neuron(device)?"
    r"|huawei\.com/(ascend\d+\w*|npu)|cambricon\.com/(mlu|mlu\d+)|hygon\.com/dcu(num)?"
    r"|enflame\.com/gcu|kunlunxin\.com/xpu|baidu\.com/xpu|alibabacloud\.com/ppu|qualcomm\.com/qaic|tenstorrent\.com/\w+"
    r"|furiosa\.ai/(warboy|rngd|npu)|rebellions\.ai/\w+|(\w+\.)?graphcore\.ai/ipu",
    re.IGNORECASE,
)
_PARTS = re.compile(
    r"nvidia\.com/mig-.+|[^/]+/[^/]*gpu[^/]*\.shared|huawei\.com/(ascend\d+\w*|npu)-\w+(\.\w+)*"
    r"|volcano\.sh/vgpu-number|4paradigm\.com/vgpu|aws\.amazon\.com/neuroncore|amd\.com/(cpx|dpx|qpx|spx)_\w+"
    r"|cambricon\.com/(mlu|mlu\d+)\.(share|smlu|mim-.+|vcore)|hygon\.com/dcu-share-?\w*|enflame\.com/(shared-gcu|vgcu)",
    re.IGNORECASE,
)
_NOT_PARTS = re.compile(r".*(mem(ory)?|core\.percentage|percent(age)?)$", re.IGNORECASE)
_COMPANIONS = re.compile(r"gpu\.intel\.com/(\w+_monitoring|tiles|millicores|memory\.max)", re.IGNORECASE)
"""What is asked for together with a device, and says nothing without it."""
_LIKE_ONE = re.compile(
    r"(?<![a-z])(v?[gntxp]pu|[dg]cu|s?mlu)|gaudi|ascend|neuron|vcuda|qaic|accelerator|davinci"
    r"|nvidia\.com/(?-i:[A-Z])",  # KubeVirt's, after the chip
    re.IGNORECASE,
)

NOT_COUNTED = "asked for an accelerator that is not counted"


@lru_cache(maxsize=4096)
def counted_as(resource: str) -> Counted | None:
    """What a number of an extended resource of Kubernetes counts; None of what is no accelerator."""
    if "/" not in resource or _COMPANIONS.fullmatch(resource):
        return None
    if _PARTS.fullmatch(resource) and not _NOT_PARTS.fullmatch(resource):
        return Counted.PARTS
    if _DEVICES.fullmatch(resource) and not _NOT_PARTS.fullmatch(resource):
        return Counted.DEVICES
    return Counted.NOT if _LIKE_ONE.search(resource) else None


def is_counted(resource: str) -> bool:
    """Whether so many of it count as so many GPUs."""
    return counted_as(resource) in (Counted.DEVICES, Counted.PARTS)


@lru_cache(maxsize=4096)
def gres_counted_as(name: str) -> Counted | None:
    """The same of a generic resource of Slurm, such as `gpu`, `shard` or `npu`, without its type.

    Only `gpu` is counted: `shard` and `mps` are shares, of which a site sets how many make a GPU.
    """
    if name == "gpu":
        return Counted.DEVICES
    return Counted.NOT if name in ("shard", "mps") or _LIKE_ONE.search(name) else None


def not_counted(names: set[str] | frozenset[str]) -> str:
    """Why a job is left out that asked for accelerators by these names alone."""
    return f"{NOT_COUNTED} ({', '.join(sorted(names))})"


def too_many(name: str) -> str:
    """Why a job is left out that asked for more of a device on one machine than any has."""
    return f"asked for more than {MOST_ON_A_NODE} {name} on a machine: slices or shares, which are not counted"
