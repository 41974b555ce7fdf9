"""What a warm start saves of a resize, in time and memory."""
