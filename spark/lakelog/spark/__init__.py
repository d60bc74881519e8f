"""Delta Lake tables in PySpark: call ``lakelog.spark.enable(spark)``, then use ``format("delta")`` and `DeltaTable`."""

from lakelog.spark.session import disable, enable
from lakelog.spark.table import DeltaTable

__all__ = ["DeltaTable", "disable", "enable"]
