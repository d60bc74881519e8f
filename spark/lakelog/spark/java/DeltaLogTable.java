package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A table as the catalog hands it out: writes work on it; reads become a DeltaRelation by Resolution. */
public class DeltaLogTable implements SupportsWrite, TruncatableTable {
  final String description;
  final SparkSession session;
  private final JsonNode told;
  private final String name;

  public DeltaLogTable(String description, String name, SparkSession session) {
    this.description = description;
    this.told = Door.parse(description);
    this.name = name;
    this.session = session;
  }

  public String name() { return name; }

  String root() { return told.get("root").asText(); }

  boolean isPinned() { return !told.get("version").isNull(); }

  public StructType schema() { return (StructType) DataType.fromJson(told.get("columns").asText()); }

  public Transform[] partitioning() {
    StructType partitions = (StructType) DataType.fromJson(told.get("partitions").asText());
    Transform[] transforms = new Transform[partitions.length()];
    for (int i = 0; i < transforms.length; i++) transforms[i] = Expressions.identity("`" + partitions.apply(i).name().replace("`", "``") + "`");
    return transforms;
  }

  public java.util.Map properties() {
    java.util.HashMap properties = new java.util.HashMap();
    java.util.Iterator all = told.get("properties").fields();
    while (all.hasNext()) {
      java.util.Map.Entry entry = (java.util.Map.Entry) all.next();
      properties.put(entry.getKey(), ((JsonNode) entry.getValue()).asText());
    }
    return properties;
  }

  public boolean truncateTable() {
    Door.ask(session, "refuse", "TRUNCATE TABLE", name, null);
    return false;
  }

  public java.util.Set capabilities() {
    return new java.util.HashSet(java.util.Arrays.asList(new TableCapability[] {
        TableCapability.BATCH_READ, TableCapability.V1_BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER}));
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new DeltaLogWrite(told.get("root").asText(), !isPinned(), Door.json(info.options()), name, session);
  }
}
