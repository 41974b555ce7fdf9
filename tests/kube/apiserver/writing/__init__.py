"""What becomes of writes: patches and managers of fields, defaults, refusals, quotas."""
