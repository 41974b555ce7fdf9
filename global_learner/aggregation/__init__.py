"""How the updates of many clusters become one head: each at once, in cohorts, or in rounds."""
