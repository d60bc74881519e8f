package lakelog;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.types.StructType;

/** A table without capabilities: Spark falls back to the V1 interfaces of the source. */
public class NoTable implements Table {
  private final StructType schema;

  public NoTable(StructType schema) { this.schema = schema; }

  public String name() { return "delta"; }

  public StructType schema() { return schema; }

  public java.util.Set capabilities() { return java.util.Collections.emptySet(); }
}
