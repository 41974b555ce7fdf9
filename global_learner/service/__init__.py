"""The learner's network services: what agents and the platform owner call, and what every call passes before."""
