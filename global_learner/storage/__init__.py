"""The learner's state on disk: the update log, snapshots, receipts, databases, and what to do when it is full."""
