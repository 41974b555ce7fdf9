"""How fast gradients and parameters move between processes, and how fast they are applied."""
