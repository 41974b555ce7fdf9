"""TrainingJobs on a cluster: their pods, their coordinators, and what is decided about them."""
