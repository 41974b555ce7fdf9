"""The state machines of a parameter server: no sockets, no threads, no clock of their own."""
