package lakelog;

import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;

/** Parquet as Delta wants it, whatever the session says: microsecond timestamps (INT96 has no bounds), the proleptic calendar, no legacy layout. */
public class DeltaParquet extends ParquetFileFormat {
  public OutputWriterFactory prepareWrite(org.apache.spark.sql.SparkSession session, Job job, scala.collection.immutable.Map options, StructType schema) {
    OutputWriterFactory factory = super.prepareWrite(session, job, options, schema);
    job.getConfiguration().set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    job.getConfiguration().set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED");
    job.getConfiguration().set("spark.sql.parquet.writeLegacyFormat", "false");
    return factory;
  }
}
