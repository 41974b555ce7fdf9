"""The story of a TrainingJob as people read it: its status, Events, and every resize once."""
