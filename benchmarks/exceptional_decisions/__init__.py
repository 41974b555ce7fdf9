"""What the guard's monitor of exceptional decisions finds, and how often wrongly."""
