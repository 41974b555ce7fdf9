"""Somebody at a coordinator's address who is not the coordinator: he keeps all bytes and headers that come to him."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from elastic_runtime.generated import elastic_pb2 as pb

OPEN = "/fedl2.elastic.v1.Sessions/Open"


@dataclass(frozen=True)
class Heard:
    """One call that came."""

    method: str
    headers: str
    data: bytes


class FalseCoordinator(grpc.GenericRpcHandler):
    """Serves from its making until it is closed.

    Args:
        address: where; one that a coordinator has left.
        code: what every call but the opening of a session is refused with; None: answered with nothing in it.
        opens: whether he opens sessions, with a proof that he has made up.
        forgets: whether he says that sessions are unknown to him, so that callers open others.
    """

    def __init__(self, address: str, code: grpc.StatusCode | None, opens: bool = False, forgets: bool = False) -> None:
        self.heard: list[Heard] = []
        self._came = threading.Condition()
        self._code, self._opens, self._forgets = code, opens, forgets
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        assert self._server.add_insecure_port(address)
        self._server.start()

    def service(self, details: Any) -> Any:
        """Every method is served."""
        method, headers = details.method, repr(details.invocation_metadata)

        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            with self._came:
                self.heard.append(Heard(method, headers, data))
                self._came.notify_all()
            if method == OPEN and self._opens:
                return pb.OpenReply(session=bytes(32), number=bytes(32), proof=bytes(32)).SerializeToString()
            if self._forgets:
                context.set_trailing_metadata((("elastic-session", "unknown"),))
            if self._code is not None:
                context.abort(self._code, "because somebody says so")
            return b""

        def stream(data: bytes, context: grpc.ServicerContext) -> Any:
            yield answer(data, context)

        if method.endswith("/Follow"):
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)

    def wait_for(self, method: str, calls: int = 1) -> None:
        """Until so many calls of a method came."""
        with self._came:
            assert self._came.wait_for(lambda: sum(method in one.method for one in self.heard) >= calls, 100.0), method

    def close(self) -> None:
        self._server.stop(None).wait()
