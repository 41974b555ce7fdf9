"""What can go wrong in the demo; every message says what to do."""

from policy_net.errors import PolicyNetError


class DemoFailed(PolicyNetError):
    """A process of the fleet ended or never answered; the message names its log."""
