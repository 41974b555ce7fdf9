"""Records of what an agent did and knows: the decision log, its replay, timelines, the state directory."""
