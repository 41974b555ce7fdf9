"""What honest clusters and the operator lose while somebody attacks the learner."""
