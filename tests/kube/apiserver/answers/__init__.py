"""What reads get: lists in pages, watches, tables, logs, and what the server says of itself."""
