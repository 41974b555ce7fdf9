"""Platform owner's command line."""
