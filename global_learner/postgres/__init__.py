"""PostgreSQL: the server by its URL, and the lease that says which of two learners is the active one."""
