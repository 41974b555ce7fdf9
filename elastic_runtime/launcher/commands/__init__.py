"""Commands of `elastic-run`: their options, what they ask of a job, and how they print what it answers."""
