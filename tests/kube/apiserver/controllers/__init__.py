"""Stand-ins for the programs that make objects of an API server into a cluster; each works by itself, on any server."""
