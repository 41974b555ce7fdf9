"""Online learning: rewards, the replay of experience, gradients; what a cluster needs to learn from its own days."""
