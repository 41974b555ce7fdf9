"""Backend of this machine: its jobs are real processes, started, resized and measured."""
