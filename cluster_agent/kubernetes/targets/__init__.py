"""What ElasticTargets point at: jobs that a team runs already, each kind in a file of its own."""
