"""The fleet's learning: trained through the real processes, judged on workloads that nobody trained on."""
