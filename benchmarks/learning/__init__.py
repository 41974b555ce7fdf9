"""Does the fleet learn? Trained through the real processes, judged on workloads that nobody trained on."""
