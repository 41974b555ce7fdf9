"""The damage that one bad cluster does to a fleet of five, by how updates are aggregated."""
