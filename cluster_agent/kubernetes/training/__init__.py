"""TrainingJobs: what people submit, and the objects that such a job consists of."""
