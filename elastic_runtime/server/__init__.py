"""The parameter server: holds blocks, applies steps to them, hands them over."""
