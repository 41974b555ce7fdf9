"""The state machines of a parameter server: no sockets, no threads, no clock of their own.

`part` takes views and messages of whatever training; `synchronous` and `asynchronous` act on them. A resize reads from
`handover` (or `asynchronous`): a view's changes become departures and arrivals, blocks leave once `pushes` has
applied their last step here, and are adopted where they come.
"""
