"""The documentation as a site: what `make docs` builds of README.md and docs/."""
