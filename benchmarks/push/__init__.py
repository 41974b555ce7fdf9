"""Updates a second that the learner takes, over mutual TLS and onto the disk, and what each costs."""
