"""DynamoDB Local: AWS' own, fetched by Maven, a table service in memory on loopback."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3

from integration.servers import maven
from integration.servers.cache import NotToBeHad, Say
from integration.servers.process import answers, running

__all__ = ["VERSION", "DynamoDBLocal"]

# 3.x asks for artifacts that are not on every registry.
VERSION = "2.6.1"


class DynamoDBLocal:
    """A running DynamoDB Local. It takes any key and keeps one set of tables for all of them.

    Attributes:
        endpoint: its URL.
        region: for which requests are signed.
        version: as far as it is known.
    """

    def __init__(self, *, endpoint: str, version: str) -> None:
        self.endpoint = endpoint
        self.region = "us-east-1"
        self.version = version
        self._names: list[str] = []

    @classmethod
    @contextmanager
    def running(cls, folder: Path, *, say: Say = print) -> Iterator[DynamoDBLocal]:
        """The one at ``$LAKELOG_DYNAMODB_URL``, else one of our own.

        Args:
            folder: for its log.
            say: is told what was started and from where.

        Raises:
            NotToBeHad: it can neither be found in the cache nor fetched, or there is no Java.
            RuntimeError: it does not start, or does not answer at the URL.
        """
        if endpoint := os.environ.get("LAKELOG_DYNAMODB_URL"):
            if not answers(endpoint):
                raise RuntimeError(f"No DynamoDB answers at LAKELOG_DYNAMODB_URL={endpoint}.")
            say(f"DynamoDB: the one at {endpoint}, by LAKELOG_DYNAMODB_URL")
            server = cls(endpoint=endpoint, version="of its own")
            try:
                yield server
            finally:
                server._remove_tables()
            return
        java = _java()
        jars = maven.jars("DynamoDB Local", "com.amazonaws", "DynamoDBLocal", VERSION, say=say)
        with running(
            "dynamodb-local",
            lambda port: [
                java,
                f"-Djava.library.path={jars}",
                "-Xmx512m",
                "-cp",
                f"{jars}/*",
                "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
                "-inMemory",
                "-sharedDb",
                "-disableTelemetry",
                "-port",
                str(port),
            ],
            lambda port: answers(f"http://127.0.0.1:{port}"),
            folder=folder,
        ) as port:
            endpoint = f"http://127.0.0.1:{port}"
            say(f"DynamoDB Local {VERSION}: started at {endpoint} from {jars} on {java}, log {folder / 'dynamodb-local.log'}")
            yield cls(endpoint=endpoint, version=VERSION)

    def options(self) -> dict[str, object]:
        """The settings of lakelog's DynamoDB store beside those of its S3, with a table of a new name."""
        return {"ddb.endpoint_url": self.endpoint, "ddb.region": self.region, "ddb.table_name": self.new_table_name()}

    def client(self, **changes: Any) -> Any:
        """A botocore client; ``changes`` replace arguments of ``boto3.client``."""
        arguments: dict[str, Any] = {
            "endpoint_url": self.endpoint,
            "aws_access_key_id": "lakelog",
            "aws_secret_access_key": "lakelog",
            "region_name": self.region,
        }
        return boto3.session.Session().client("dynamodb", **(arguments | changes))

    def new_table_name(self) -> str:
        """A name that no table has."""
        self._names.append(f"lakelog-{uuid.uuid4().hex[:12]}")
        return self._names[-1]

    def _remove_tables(self) -> None:
        """Somebody else's server is left as it was."""
        client = self.client()
        for name in self._names:
            with suppress(client.exceptions.ResourceNotFoundException):
                client.delete_table(TableName=name)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise NotToBeHad("DynamoDB Local is not to be had: no Java at JAVA_HOME or on the PATH; make integration finds one")
    return java
