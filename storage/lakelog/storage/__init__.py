"""Where bytes live: the LogStore contract, its implementations, and the table log that drives the core over one of them."""

from lakelog.storage.registry import configure, log_store_for

__all__ = ["configure", "log_store_for"]
