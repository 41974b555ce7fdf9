"""Beliefs of the clusters about speeds: checked, kept, and merged into the versions' priors."""
