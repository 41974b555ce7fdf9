"""One process per job that decides who computes, who owns what, and from which step on."""
