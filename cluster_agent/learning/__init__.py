"""The learning side: experience, gradients, and rounds of work for the learner."""
