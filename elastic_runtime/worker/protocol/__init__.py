"""The state machines of a worker: no sockets, no threads, no clock of their own."""
