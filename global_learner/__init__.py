"""The central learner: one policy, improved by every cluster's gradients."""
