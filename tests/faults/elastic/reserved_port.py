"""A port that is a process's also while that process is not there: nobody else is given it meanwhile."""

import socket


class ReservedPort:
    """Held until it is closed; whoever binds it with SO_REUSEADDR, as gRPC and ZeroMQ do, may listen there.

    A port that is only found free and given back can be taken by any connection that is made on the machine.
    """

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number: int = self._holder.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def close(self) -> None:
        self._holder.close()
