"""How many updates a second the learner takes, over mutual TLS and onto the disk, and what each costs."""
