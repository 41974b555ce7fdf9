"""Metrics of the secrets that a program has in use, the same for every program but for their names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge

from policy_net.exchange.secrets_in_use import SecretInUse


class SecretMetrics:
    """The secrets in use that are told of: when certificates expire, and whether replaced files are used."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        certificate_expiry: str,
        certificate_life: str,
        refused: str,
        replacements: str,
    ) -> None:
        """Make the metrics, by the names that the program gives them."""
        self._secrets: tuple[SecretInUse, ...] = ()
        self._certificate_expiry = Gauge(
            certificate_expiry,
            "When a certificate in use expires, as Unix time, by what it is for; 0 where there is none.",
            ["certificate"],
            registry=registry,
        )
        self._certificate_life = Gauge(
            certificate_life,
            "How long a certificate in use holds from its beginning to its end, by what it is for; 0 where there is "
            "none.",
            ["certificate"],
            registry=registry,
        )
        self._refused = Gauge(
            refused,
            "1 while a secret's file was changed and cannot be used, so that what was read before serves on; else 0.",
            ["secret"],
            registry=registry,
        )
        self._replacements = Counter(
            replacements,
            "Times that a secret's file was changed and what is in it took the place of what was read before.",
            ["secret"],
            registry=registry,
        )

    def __iter__(self) -> Iterator[SecretInUse]:
        return iter(self._secrets)

    def add(self, *secrets: SecretInUse) -> None:
        """Tell of these secrets from now on; one in the place of another of the same name."""
        names = {secret.name for secret in secrets}
        self._secrets = (*(secret for secret in self._secrets if secret.name not in names), *secrets)
        for secret in secrets:
            self._register(secret)

    def _register(self, secret: SecretInUse) -> None:
        validity = secret.validity
        if validity is not None:
            self._certificate_expiry.labels(secret.name).set_function(lambda: validity().ends_unix_seconds)
            self._certificate_life.labels(secret.name).set_function(lambda: validity().life_seconds)
        self._refused.labels(secret.name).set_function(lambda: float(secret.refusal() != ""))
        self._replacements.labels(secret.name)

    def on_replaced(self, name: str) -> None:
        """Count that a secret's files were replaced and are used."""
        self._replacements.labels(name).inc()

    def poll(self) -> None:
        """Look at the files of all, where it is time."""
        for secret in self._secrets:
            secret.poll()
