"""The brain of fedl2: domain, policies, simulation, learning. No sockets, no wall clock, no environment variables."""
