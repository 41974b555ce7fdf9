"""A wire that a test can cut, or let nothing through: TCP connections to a port of its own, passed on to an address."""

import contextlib
import selectors
import socket
import threading

_CHUNK = 65536
_OBEY_SECONDS = 100.0


class Wire:
    """Listens until it is closed.

    Args:
        target: where to; whoever is there may come later.
        own: where to listen; port 0 takes any.

    Attributes:
        address: to connect to in place of the target's.
    """

    def __init__(self, target: str, own: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(own)
        self.address = f"{own[0]}:{self._listener.getsockname()[1]}"
        self._delay_seconds = 0.0
        self._lock = threading.Lock()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._stalled = threading.Event()
        self._cut = threading.Event()
        self._obeyed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stall(self) -> None:
        """What is sent stays on the way, from the return of this on."""
        self._obeyed.clear()
        self._stalled.set()
        assert self._obeyed.wait(_OBEY_SECONDS)

    def slow(self, delay_seconds: float) -> None:
        """Each piece that is sent is so long on its way, and the next ones behind it."""
        self._delay_seconds = delay_seconds

    def cut(self) -> None:
        """Connections break, and none is made: from the return of this on nothing gets through."""
        self._obeyed.clear()
        self._cut.set()
        assert self._obeyed.wait(_OBEY_SECONDS)

    def mend(self) -> None:
        """All is well again; what was on the way arrives."""
        self._delay_seconds = 0.0
        self._stalled.clear()
        self._cut.clear()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closed.is_set():
                cut, stalled = self._cut.is_set(), self._stalled.is_set()
                if cut:
                    self._break(selector)
                if cut or stalled:
                    self._obeyed.set()
                if stalled:
                    self._closed.wait(0.005)
                    continue
                for key, _ in selector.select(0.02):
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    else:
                        self._pass_on(selector, key.fileobj)  # type: ignore[arg-type]
            self._break(selector)
        self._listener.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        if self._cut.is_set():
            near.close()
            return
        try:
            far = socket.create_connection(self._target, 1.0)
        except OSError:
            near.close()
            return
        far.settimeout(None)  # whoever does not take what is sent is waited for, as on any wire
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, selector: selectors.BaseSelector, source: socket.socket) -> None:
        if source not in self._pairs:
            return
        target = self._pairs[source]
        try:
            data = source.recv(_CHUNK)
            if data:
                self._closed.wait(self._delay_seconds)
                target.sendall(data)
                return
        except OSError:
            pass
        self._drop(selector, source)

    def _drop(self, selector: selectors.BaseSelector, one: socket.socket) -> None:
        for end in (one, self._pairs[one]):
            self._pairs.pop(end, None)
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(end)
            end.close()

    def _break(self, selector: selectors.BaseSelector) -> None:
        for end in tuple(self._pairs):
            if end in self._pairs:
                self._drop(selector, end)
