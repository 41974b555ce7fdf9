"""How clusters come to have an identity: the authority, who is invited, who holds which certificate, what was done."""
