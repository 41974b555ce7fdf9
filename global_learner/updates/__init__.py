"""The updates of the clusters, from the judgement of one to the head that it moves and the version that follows."""
