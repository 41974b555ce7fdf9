"""The laboratory: workloads replayed in a simulated cluster, offline training, reports, and the commands for them."""
