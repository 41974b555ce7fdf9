"""Speed of gradients and parameters on their way between processes, and of their application."""
