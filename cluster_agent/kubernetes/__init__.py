"""The Kubernetes API: requests in raw JSON, a cache that follows a resource, an elector, and events."""
