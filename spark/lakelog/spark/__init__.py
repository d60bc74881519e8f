"""Delta Lake tables in PySpark: call ``lakelog.spark.enable(spark)``, then use ``format("delta")`` and `DeltaTable`."""

from lakelog.spark.builder import DeltaTableBuilder, IdentityGenerator
from lakelog.spark.engines import who_can_read
from lakelog.spark.session import disable, enable
from lakelog.spark.table import DeltaTable

__all__ = ["DeltaTable", "DeltaTableBuilder", "IdentityGenerator", "disable", "enable", "who_can_read"]
