"""What noise for privacy costs in learning."""
