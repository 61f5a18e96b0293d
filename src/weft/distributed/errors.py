"""Errors of exchanges between ranks."""

from __future__ import annotations

__all__ = ["CollectiveTimeout", "DistributedError"]


class DistributedError(RuntimeError):
    """Ranks disagree, one cannot take part, or one did not come in time. Every rank raises it, where it waits."""


class CollectiveTimeout(DistributedError, TimeoutError):
    """Not all ranks came within WEFT_COLLECTIVE_TIMEOUT_S."""
