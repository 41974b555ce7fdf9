"""The deciding side: the active policy and the deadline under which it is asked."""
