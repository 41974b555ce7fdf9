"""What all demonstrations share: their processes, their learner, what they watch and how they end."""
