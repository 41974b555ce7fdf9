"""A thousand clusters on one learner: whether anything is lost, how long a push takes, whether memory stays flat."""
