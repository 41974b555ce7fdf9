"""Training: imitation, actor-critic, replay, exploration, evaluation."""
