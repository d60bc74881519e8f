"""The real servers that integration/ runs against, and the jars that Spark wants for them.

Each module knows one: how it is had (built or fetched once from the package registries that the machine's own ``go`` and ``mvn`` are
set up for, kept in a cache outside the clone), how it starts, and which variables point at one that is running already. What cannot
be had is `NotToBeHad`; what was had and does not start is an error.
"""

from integration.servers.cache import NotToBeHad, cache_folder
from integration.servers.dynamodb_local import DynamoDBLocal
from integration.servers.hadoop_aws import hadoop_aws_jars
from integration.servers.minio import MinIO

__all__ = ["DynamoDBLocal", "MinIO", "NotToBeHad", "cache_folder", "hadoop_aws_jars"]
