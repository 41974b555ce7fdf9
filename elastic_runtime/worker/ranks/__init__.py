"""All-reduce: workers that exchange gradients directly, each of a rank, as under torchrun."""
