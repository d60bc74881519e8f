"""A writer of Delta commits that knows nothing of lakelog: boto3, and the protocol of delta-spark's S3DynamoDBLogStore, step by step.

It is what the tests put beside lakelog's DynamoDB store, since the original is not to be had here. It does as the original does where
lakelog does more: its copy of the commit is a look and an unconditional put, and its last entry replaces whatever is there.

    0. look for N.json, an error if it is there
    1. look at the entry of N-1: recover it if it is not complete; an error if neither it nor the file is there
    2. put the temporary object .tmp/N.json.<uuid>
    3. put the entry, complete=false, unless there is one: the commit
    4. copy the temporary object to N.json
    5. put the entry, complete=true, with the time at which it expires

Also a program: ``python -m integration.mixed_writer '<json>'`` commits as `main` says, for tests that need another process.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

__all__ = ["STEPS", "MixedWriter", "Stopped", "Taken"]

STEPS = ("looked", "previous", "temporary", "entered", "copied", "completed")
"""After which it can be stopped, in order."""

_TTL_S = 86_400
_RECOVERIES = 4


class Taken(Exception):
    """Another writer has the version."""


class Stopped(Exception):
    """It was told to stop here, and does nothing more."""


class MixedWriter:
    """Commits to one table.

    Args:
        s3, dynamodb: the arguments of ``boto3.client`` for both.
        bucket, prefix: where the table is.
        table: the DynamoDB table, which is made when it is not there.
        scheme: by which the table is called in entries.
    """

    def __init__(
        self, *, s3: Mapping[str, Any], dynamodb: Mapping[str, Any], bucket: str, prefix: str, table: str, scheme: str = "s3a"
    ) -> None:
        session = boto3.session.Session()
        self._s3 = session.client("s3", config=Config(s3={"addressing_style": "path"}), **s3)
        self._dynamodb = session.client("dynamodb", **dynamodb)
        self._bucket = bucket
        self._log = f"{prefix}/_delta_log"
        self._table = table
        self._table_path = f"{scheme}://{bucket}/{prefix}"
        self._make_table()

    def commit(self, version: int, data: bytes, *, stop_after: str | None = None, pause: Callable[[str], None] = lambda step: None) -> None:
        """Write one version.

        Args:
            stop_after: one of `STEPS`, after which it goes no further.
            pause: called after each step, with its name.

        Raises:
            Taken: the version is another's.
            Stopped: it was told to.
            RuntimeError: the version before is missing.
        """

        def reached(step: str) -> None:
            if step == stop_after:
                raise Stopped(step)
            pause(step)

        name = _name(version)
        if self._exists(f"{self._log}/{name}"):
            raise Taken(name)
        reached("looked")
        self._make_previous_sound(version)
        reached("previous")
        temporary = f".tmp/{name}.{uuid.uuid4()}"
        self._put(f"{self._log}/{temporary}", data)
        reached("temporary")
        self._enter(name, temporary)
        reached("entered")
        try:
            self._copy(temporary, name)
            reached("copied")
            self._complete(name, temporary)
        except Taken:
            # The original logs whatever goes wrong after the entry and leaves it to whoever comes next.
            return
        reached("completed")

    def list(self) -> list[str]:
        """The names of the commits, after the newest entry was recovered if it had to be."""
        found = self._dynamodb.query(
            TableName=self._table,
            ConsistentRead=True,
            ScanIndexForward=False,
            Limit=1,
            KeyConditions={"tablePath": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": self._table_path}]}},
        )["Items"]
        if found and found[0]["complete"]["S"] != "true":
            self._recover(found[0])
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=f"{self._log}/", Delimiter="/")
        names = [item["Key"].rpartition("/")[2] for page in pages for item in page.get("Contents", [])]
        return sorted(name for name in names if name.endswith(".json"))

    def append(self, data: bytes) -> int:
        """Commit at the first free version, and say which it was."""
        while True:
            version = len(self.list())
            try:
                self.commit(version, data)
            except (Taken, RuntimeError):
                continue
            return version

    def read(self, version: int) -> bytes:
        """The bytes of a version as S3 has them."""
        body: bytes = self._s3.get_object(Bucket=self._bucket, Key=f"{self._log}/{_name(version)}")["Body"].read()
        return body

    def entry(self, version: int) -> dict[str, str] | None:
        """The plain values of a version's entry."""
        key = {"tablePath": {"S": self._table_path}, "fileName": {"S": _name(version)}}
        item = self._dynamodb.get_item(TableName=self._table, ConsistentRead=True, Key=key).get("Item")
        return {name: next(iter(value.values())) for name, value in item.items()} if item else None

    def _make_previous_sound(self, version: int) -> None:
        name = _name(version - 1 if version else 0)
        entry = self._dynamodb.get_item(
            TableName=self._table, ConsistentRead=True, Key={"tablePath": {"S": self._table_path}, "fileName": {"S": name}}
        ).get("Item")
        if version == 0:
            if entry and entry["complete"]["S"] == "true" and not self._exists(f"{self._log}/{name}"):
                raise RuntimeError(f"old entries for {self._table_path}")
        elif entry and entry["complete"]["S"] != "true":
            self._recover(entry)
        elif not self._exists(f"{self._log}/{name}"):
            raise RuntimeError(f"{name} is missing")

    def _recover(self, entry: Mapping[str, Mapping[str, str]]) -> None:
        name, temporary = entry["fileName"]["S"], entry["tempPath"]["S"]
        for attempt in range(_RECOVERIES):
            try:
                if not self._exists(f"{self._log}/{name}"):
                    self._copy(temporary, name)
                self._complete(name, temporary)
            except (Taken, ClientError):
                if attempt == _RECOVERIES - 1:
                    raise
                continue
            return

    def _copy(self, temporary: str, name: str) -> None:
        data = self._s3.get_object(Bucket=self._bucket, Key=f"{self._log}/{temporary}")["Body"].read()
        if self._exists(f"{self._log}/{name}"):
            raise Taken(name)
        self._put(f"{self._log}/{name}", data)

    def _enter(self, name: str, temporary: str) -> None:
        try:
            self._dynamodb.put_item(
                TableName=self._table, Item=self._item(name, temporary, "false"), Expected={"fileName": {"Exists": False}}
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            raise Taken(name) from None

    def _complete(self, name: str, temporary: str) -> None:
        item = self._item(name, temporary, "true") | {"expireTime": {"N": str(int(time.time()) + _TTL_S)}}
        self._dynamodb.put_item(TableName=self._table, Item=item)

    def _item(self, name: str, temporary: str, complete: str) -> dict[str, dict[str, str]]:
        return {
            "tablePath": {"S": self._table_path},
            "fileName": {"S": name},
            "tempPath": {"S": temporary},
            "complete": {"S": complete},
        }

    def _exists(self, key: str) -> bool:
        try:
            self._s3.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return True

    def _put(self, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=data)

    def _make_table(self) -> None:
        try:
            self._dynamodb.describe_table(TableName=self._table)
        except self._dynamodb.exceptions.ResourceNotFoundException:
            with suppress(self._dynamodb.exceptions.ResourceInUseException):
                self._dynamodb.create_table(
                    TableName=self._table,
                    AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("tablePath", "fileName")],
                    KeySchema=[
                        {"AttributeName": "tablePath", "KeyType": "HASH"},
                        {"AttributeName": "fileName", "KeyType": "RANGE"},
                    ],
                    ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 5},
                )
        self._dynamodb.get_waiter("table_exists").wait(TableName=self._table, WaiterConfig={"Delay": 1, "MaxAttempts": 20})


def main(arguments: Mapping[str, Any]) -> list[int]:
    """Append so many commits.

    Args:
        arguments: ``writer``, those of `MixedWriter`; ``commits``, how many; ``body``, of each, NUMBER standing for which it is.

    Returns:
        Their versions.
    """
    writer = MixedWriter(**arguments["writer"])
    return [writer.append(arguments["body"].replace("NUMBER", str(number)).encode()) for number in range(arguments["commits"])]


def _name(version: int) -> str:
    return f"{version:020d}.json"


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
