"""The state machines of a worker: no sockets, no threads, no clock of their own.

A resize reads from `step_turns`: a proposal is voted on, and holds the worker at its clock until it is resolved. From
the clock on `exchange` (asynchronous: `updates`) sends to the blocks' new holders, and expects their answers.
"""
