"""Enrollment of clusters: the authority, who is invited, who holds which certificate, what was done."""
