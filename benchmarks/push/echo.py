"""The reference: a bare grpcio server that answers with the bytes it was sent, from one event loop like the learner.

Its figures are what transport alone costs on this machine at this moment.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import grpc

from benchmarks.push.load import ECHO
from policy_net.exchange.identity_file import read_identity


class _Echo(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if details.method != ECHO:
            return None
        return grpc.unary_unary_rpc_method_handler(_answer)


async def _answer(request: bytes, context: object) -> bytes:
    del context
    return request


async def serve(identity: Path | None, port_file: Path) -> None:
    """Answer until SIGTERM; with an identity, callers must show a certificate of its authority."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((_Echo(),))
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        own = read_identity(identity)
        credentials = grpc.ssl_server_credentials(
            [(own.key, own.certificate)], root_certificates=own.authority, require_client_auth=True
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    partial = port_file.with_suffix(".partial")
    partial.write_text(str(port))
    partial.replace(port_file)
    await ending.wait()
    await server.stop(1.0)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[2]) if len(sys.argv) > 2 else None, Path(sys.argv[1])))
