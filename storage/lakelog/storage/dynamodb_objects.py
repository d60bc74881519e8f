"""The files of tables whose writers exclude each other through DynamoDB: S3 as the ``s3`` store has it, with or without conditions."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lakelog.storage.dynamodb_items import commit_at
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import AlreadyExists, Created, PutOutcome
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.s3_probe import UnconditionalWrites, require_conditional_writes
from lakelog.storage.s3_requests import bucket_and_key

__all__ = ["CommitObjects"]

_LOGGER = logging.getLogger(__name__)


class CommitObjects(S3LogStore):
    """``put_if_absent`` of a commit is asked by whoever has, or completes, the entry that decides it: all of them put the same bytes.

    It is conditional all the same, so that the commit of a writer without DynamoDB is not replaced. Conditions count only where they were
    tried out before the first commit, as the ``s3`` store does it: elsewhere a commit is a look and a put, as with delta-spark.
    """

    def __init__(self, options: Mapping[str, object] | None = None, *, environment: Environment | None = None) -> None:
        super().__init__(options, environment=environment)
        self._without_conditions: set[str] = set()

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if commit_at(path) is None:
            return super().put_if_absent(path, data)
        if self._has_conditions(path):
            try:
                return self._create(path, data)
            except UnconditionalWrites:
                # One of several servers behind the address: nothing was written.
                self._without_conditions.add(bucket_and_key(path)[0])
        if self._head(path) is not None:
            return AlreadyExists()
        self.put(path, data)
        return Created()

    def _has_conditions(self, path: str) -> bool:
        """Whether the server of a path is known to create nothing that is there; tried out once for its bucket.

        Raises:
            StoreConfigurationError: the server or who asks it is wrong.
            StorageError, OSError: the server did not answer to the point; it is tried out by the next commit.
        """
        bucket = bucket_and_key(path)[0]
        if bucket not in self._without_conditions:
            folder = path.rpartition("/")[0] + "/"
            try:
                require_conditional_writes(self._requests(bucket), folder, self._environment.new_uuid)
            except UnconditionalWrites:
                self._without_conditions.add(bucket)
                _LOGGER.warning(
                    "%s: the server honours no If-None-Match, so that commits are put after a look, as delta-spark does", folder
                )
        return bucket not in self._without_conditions
