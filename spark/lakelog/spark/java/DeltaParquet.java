package lakelog;

import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Parquet as LocalProperties.parquet wants it, for what Spark reads from the job's own conf instead of the task's. */
public class DeltaParquet extends ParquetFileFormat {
  private final StructType physical;

  /** With the names and field ids that the data columns have in files, in their order; null where those of the rows do. */
  public DeltaParquet(StructType physical) { this.physical = physical; }

  public OutputWriterFactory prepareWrite(org.apache.spark.sql.SparkSession session, Job job, scala.collection.immutable.Map options, StructType schema) {
    StructType written = physical == null ? schema : (StructType) renamed(schema, physical);
    OutputWriterFactory factory = super.prepareWrite(session, job, options, written);
    job.getConfiguration().set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    job.getConfiguration().set("spark.sql.parquet.writeLegacyFormat", "false");
    if (physical != null) job.getConfiguration().set("spark.sql.parquet.fieldId.write.enabled", "true");
    return factory;
  }

  /** The types of the rows under the names of the files; both have one shape, since rows are written by position. */
  private static DataType renamed(DataType rows, DataType names) {
    if (rows instanceof StructType) {
      StructField[] fields = new StructField[((StructType) rows).length()];
      for (int i = 0; i < fields.length; i++) {
        StructField row = ((StructType) rows).apply(i);
        StructField file = ((StructType) names).apply(i);
        fields[i] = new StructField(file.name(), renamed(row.dataType(), file.dataType()), row.nullable(), file.metadata());
      }
      return new StructType(fields);
    }
    if (rows instanceof ArrayType) {
      ArrayType array = (ArrayType) rows;
      return new ArrayType(renamed(array.elementType(), ((ArrayType) names).elementType()), array.containsNull());
    }
    if (rows instanceof MapType) {
      MapType map = (MapType) rows;
      return new MapType(renamed(map.keyType(), ((MapType) names).keyType()), renamed(map.valueType(), ((MapType) names).valueType()),
          map.valueContainsNull());
    }
    return rows;
  }
}
