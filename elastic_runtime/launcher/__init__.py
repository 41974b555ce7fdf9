"""Launcher: starts and looks after one job's processes on this machine; `elastic-run` is its command line."""
