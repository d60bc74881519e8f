"""The files of tables whose writers exclude each other through DynamoDB: S3 as the ``s3`` store has it, with or without conditions."""

from __future__ import annotations

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.dynamodb_items import commit_at
from lakelog.storage.log_store import AlreadyExists, Created, PutOutcome
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.s3_probe import require_conditional_writes
from lakelog.storage.s3_requests import bucket_and_key

__all__ = ["CommitObjects"]


class CommitObjects(S3LogStore):
    """``put_if_absent`` of a commit is asked by whoever has, or completes, the entry that decides it: all of them put the same bytes.

    It is conditional all the same, so that the commit of a writer without DynamoDB is not replaced. Where a server does not know the
    condition, it is a look and a put, as with delta-spark.
    """

    _conditional = True

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if commit_at(path) is None:
            return super().put_if_absent(path, data)
        if self._conditional:
            try:
                return self._create(path, data)
            except StoreConfigurationError:
                if self._knows_conditions(path):
                    raise
                self._conditional = False
        if self._head(path) is not None:
            return AlreadyExists()
        self.put(path, data)
        return Created()

    def _knows_conditions(self, path: str) -> bool:
        folder = path.rpartition("/")[0] + "/"
        try:
            require_conditional_writes(self._requests(bucket_and_key(path)[0]), folder, self._environment.new_uuid)
        except StoreConfigurationError:
            # Where it is not the condition that is wrong, the put says the same.
            return False
        return True
