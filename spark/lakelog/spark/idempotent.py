"""Idempotent writes: a write that names its application and a number is done once, however often it is run.

The commit carries a ``txn`` action (PROTOCOL.md, "Transaction Identifiers"). A later write of the same application with the same or a
lower number finds it and does nothing; of two that run at once, one gets a ConcurrentTransactionException.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from lakelog.core.actions import SetTransaction
from lakelog.core.commit import Reads
from lakelog.core.errors import InvalidOptionError
from lakelog.core.snapshot import Snapshot
from lakelog.spark.confs import session_conf, session_flag, unset
from lakelog.spark.options import WriteRequest

_log = logging.getLogger(__name__)

_APP_ID, _VERSION = "txnAppId", "txnVersion"
_CONF_APP_ID, _CONF_VERSION, _CONF_AUTO_RESET = "write.txnAppId", "write.txnVersion", "write.txnVersion.autoReset.enabled"
_NUMBERS = range(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentWrite:
    """What a write says of its own repetition.

    Attributes:
        root: the table's root, for messages.
        app_id: the application; None where the write is an ordinary one.
        version: its number, counting up within the application.
        from_session: the session's confs named them, not the write's options.
        auto_reset: the session asks that its number be used once.
    """

    root: str
    app_id: str | None
    version: int
    from_session: bool
    auto_reset: bool = False

    @classmethod
    def of(cls, spark: SparkSession, root: str, request: WriteRequest | None = None) -> IdempotentWrite:
        """From the write's options ``txnAppId`` and ``txnVersion``, else from the session's confs
        ``spark.databricks.delta.write.txnAppId`` and ``...txnVersion`` (or ``spark.lakelog.write...``).

        Raises:
            InvalidOptionError: one is given without the other, the version is no number, or two spellings of a conf disagree.
        """
        app_id, version = (None, None) if request is None else (request.txn_app_id, request.txn_version)
        where, from_session = "write option", False
        if app_id is None and version is None:
            app_id, version = session_conf(spark, root, _CONF_APP_ID), session_conf(spark, root, _CONF_VERSION)
            where, from_session = "session conf", True
        if app_id is None and version is None:
            return cls(root=root, app_id=None, version=0, from_session=False)
        if app_id == "":
            raise InvalidOptionError(f"Delta table {root}: the {where} txnAppId is empty. Name the application, or leave both out.")
        if app_id is None or version is None:
            missing, given = (_APP_ID, _VERSION) if app_id is None else (_VERSION, _APP_ID)
            raise InvalidOptionError(
                f"Delta table {root}: an idempotent write needs both txnAppId and txnVersion, but the {where} {given} came alone. "
                f"Give {missing} too, or neither."
            )
        if re.fullmatch(r"\+?[0-9]{1,30}", version) is None or int(version) not in _NUMBERS:
            raise InvalidOptionError(
                f"Delta table {root}: the {where} txnVersion must be a whole number from 0 to {_NUMBERS[-1]}, not {version!r}."
            )
        auto_reset = from_session and bool(session_flag(spark, root, _CONF_AUTO_RESET))
        return cls(root=root, app_id=app_id, version=int(version), from_session=from_session, auto_reset=auto_reset)

    def is_done(self, snapshot: Snapshot) -> bool:
        """Whether the table holds this write, or a later one of the application."""
        done = None if self.app_id is None else snapshot.transactions.get(self.app_id)
        if done is None or done.version < self.version:
            return False
        _log.info("Delta table %s: version %d of %s is done (the table has %d)", self.root, self.version, self.app_id, done.version)
        return True

    def actions(self, now_ms: int) -> tuple[SetTransaction, ...]:
        """The ``txn`` action for the commit."""
        return () if self.app_id is None else (SetTransaction(app_id=self.app_id, version=self.version, last_updated=now_ms),)

    def reading(self, reads: Reads) -> Reads:
        """What the write read, with the application whose last number it asked for."""
        return reads if self.app_id is None else replace(reads, app_ids=frozenset({self.app_id}))

    def used(self, spark: SparkSession) -> None:
        """Unset the session's version where ``txnVersion.autoReset.enabled`` asks for it, so that the next write must name its own."""
        if self.auto_reset:
            unset(spark, _CONF_VERSION)
