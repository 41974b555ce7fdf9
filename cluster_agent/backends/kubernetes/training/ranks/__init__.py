"""All-reduce TrainingJobs: gangs of ranks that are started together, and followed by others for each other size."""
