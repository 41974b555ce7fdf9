"""The brain of fedl2 decides and learns online; `laboratory` simulates and trains offline, `exchange` is what travels.

No sockets, no wall clock, no environment variables.
"""
