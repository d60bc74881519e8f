package lakelog;

import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;

/** Parquet as LocalProperties.parquet wants it, for what Spark reads from the job's own conf instead of the task's. */
public class DeltaParquet extends ParquetFileFormat {
  public OutputWriterFactory prepareWrite(org.apache.spark.sql.SparkSession session, Job job, scala.collection.immutable.Map options, StructType schema) {
    OutputWriterFactory factory = super.prepareWrite(session, job, options, schema);
    job.getConfiguration().set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    job.getConfiguration().set("spark.sql.parquet.writeLegacyFormat", "false");
    return factory;
  }
}
