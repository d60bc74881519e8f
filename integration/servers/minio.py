"""MinIO: built by ``go install``, an S3 store on loopback."""

from __future__ import annotations

import os
import platform
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from integration.servers.cache import Say, cached, run_tool
from integration.servers.process import answers, running

__all__ = ["MODULE", "VERSION", "MinIO"]

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
# Set on the server too, so that a request signed for another region is refused as AWS refuses it.
REGION = "us-east-1"

_USER, _PASSWORD = "lakelogadmin", "lakelogsecret"


class MinIO:
    """A running MinIO.

    Attributes:
        endpoint: its URL.
        access_key: the key of its administrator.
        secret_key: the secret that belongs to it.
        region: for which requests are signed.
        version: as far as it is known.
    """

    def __init__(self, *, endpoint: str, access_key: str, secret_key: str, version: str) -> None:
        self.endpoint = endpoint
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = REGION
        self.version = version
        self._buckets: list[str] = []

    @classmethod
    @contextmanager
    def running(cls, folder: Path, *, say: Say = print) -> Iterator[MinIO]:
        """The one at ``$LAKELOG_MINIO_URL`` (with ``LAKELOG_MINIO_USER`` and ``LAKELOG_MINIO_PASSWORD``), else one of our own.

        Args:
            folder: for its objects, which go when it stops, and its log, which stays.
            say: is told what was started and from where.

        Raises:
            NotToBeHad: it can neither be found in the cache nor built.
            RuntimeError: it does not start, or does not answer at the URL.
        """
        user, password = os.environ.get("LAKELOG_MINIO_USER", _USER), os.environ.get("LAKELOG_MINIO_PASSWORD", _PASSWORD)
        if endpoint := os.environ.get("LAKELOG_MINIO_URL"):
            if not answers(f"{endpoint}/minio/health/live"):
                raise RuntimeError(f"No MinIO answers at LAKELOG_MINIO_URL={endpoint}.")
            say(f"MinIO: the one at {endpoint}, by LAKELOG_MINIO_URL")
            server = cls(endpoint=endpoint, access_key=user, secret_key=password, version="of its own")
            try:
                yield server
            finally:
                server._remove_buckets()
            return
        binary = minio_binary(say=say)
        environment = {
            "MINIO_ROOT_USER": user,
            "MINIO_ROOT_PASSWORD": password,
            "MINIO_SITE_REGION": REGION,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        data = folder / "data"
        with running(
            "minio",
            lambda port: [str(binary), "server", "--address", f"127.0.0.1:{port}", "--certs-dir", f"{folder}/certs", str(data)],
            lambda port: answers(f"http://127.0.0.1:{port}/minio/health/ready"),
            folder=folder,
            environment=environment,
        ) as port:
            endpoint = f"http://127.0.0.1:{port}"
            say(f"MinIO {VERSION}: started at {endpoint} from {binary}, log {folder / 'minio.log'}")
            yield cls(endpoint=endpoint, access_key=user, secret_key=password, version=VERSION)
        shutil.rmtree(data, ignore_errors=True)

    def options(self) -> dict[str, object]:
        """lakelog's settings of a store on it."""
        return {"endpoint_url": self.endpoint, "key": self.access_key, "secret": self.secret_key, "region": self.region}

    def hadoop(self) -> dict[str, str]:
        """The same as Spark's own ``s3a`` filesystem is told it, without the ``spark.hadoop.`` of a session's conf."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.path.style.access": "true",
        }

    def environment(self) -> dict[str, str]:
        """The same as the variables that every AWS program reads."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def client(self, service: str = "s3", **changes: Any) -> Any:
        """A botocore client of its administrator; ``changes`` replace arguments of ``boto3.client``."""
        arguments: dict[str, Any] = {
            "endpoint_url": self.endpoint,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "region_name": self.region,
            "config": Config(s3={"addressing_style": "path"}),
        }
        return boto3.session.Session().client(service, **(arguments | changes))

    def new_bucket(self) -> str:
        """The name of a bucket that holds nothing."""
        name = f"lakelog-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        self._buckets.append(name)
        return name

    def _remove_buckets(self) -> None:
        """Somebody else's server is left as it was."""
        client = self.client()
        for name in self._buckets:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                if objects := [{"Key": found["Key"]} for found in page.get("Contents", [])]:
                    client.delete_objects(Bucket=name, Delete={"Objects": objects})
            client.delete_bucket(Bucket=name)


def minio_binary(*, say: Say = print) -> Path:
    """The program, built once.

    Raises:
        NotToBeHad: there is no Go, or it could not build it.
    """

    def build(folder: Path) -> None:
        say(f"building MinIO {VERSION} with go install, once, which takes some minutes")
        run_tool("MinIO", ["go", "install", f"{MODULE}@{VERSION}"], folder=folder, environment={"GOBIN": str(folder)})

    return cached(f"minio-{VERSION}-{platform.system()}-{platform.machine()}".lower(), build) / "minio"
