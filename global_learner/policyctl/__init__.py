"""The platform owner's command line."""
