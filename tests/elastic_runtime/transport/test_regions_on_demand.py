"""Shared memory that is there only where it was asked for."""

import os
import secrets

from elastic_runtime.transport import Endpoint


def _allocated_bytes(descriptor: int | None) -> int:
    assert descriptor is not None
    return os.fstat(descriptor).st_blocks * 512


def test_only_reserved_pages_are_allocated() -> None:
    with Endpoint("ps-0", bind="tcp://127.0.0.1:0", job_token=secrets.token_hex(16)) as endpoint:
        whole = endpoint.region("whole", 1 << 20)
        sparse = endpoint.region("sparse", 1 << 20, on_demand=True)
        assert _allocated_bytes(whole.descriptor) == 1 << 20
        assert _allocated_bytes(sparse.descriptor) == 0
        sparse.reserve(1 << 16, 1 << 17)
        assert _allocated_bytes(sparse.descriptor) == 1 << 16
        sparse.memory[(1 << 16) + 5] = 7
        assert bytes(sparse.memory[1 << 16 : (1 << 16) + 6]) == b"\0\0\0\0\0\7"
        sparse.reserve(1 << 16, (1 << 16) + 10)
        assert sparse.memory[(1 << 16) + 5] == 7


def test_private_memory_needs_no_reservation() -> None:
    endpoint = Endpoint("ps-0", bind="tcp://127.0.0.1:0", job_token=secrets.token_hex(16), shared_memory=False)
    with endpoint:
        region = endpoint.region("private", 1 << 16, on_demand=True)
        region.reserve(0, 1 << 16)
        region.memory[-1] = 1
        assert not region.shared
