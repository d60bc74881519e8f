package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** A native scan, and INSERT INTO that comes to us instead of writing bare Parquet past the log. */
public class DeltaRelation extends HadoopFsRelation implements InsertableRelation {
  private final SparkSession owner;
  private final String root;

  public DeltaRelation(DeltaLogFileIndex index, StructType all, ParquetFileFormat format, SparkSession session) {
    super(index, index.partitionSchema(), all, scala.Option.empty(), format, new scala.collection.immutable.HashMap(), session);
    this.owner = session;
    this.root = index.root;
  }

  public void insert(org.apache.spark.sql.Dataset data, boolean overwrite) {
    Door.ask(owner, "insert", root, overwrite ? "Overwrite" : "Append", data);
  }

  /** The relation of a snapshot as Python describes it: {"root", "version", "engine", "bytes", "schema", "partitions", "physical", "byId"}. */
  public static DeltaRelation described(String description, SparkSession session) {
    JsonNode told = Door.parse(description);
    DeltaLogFileIndex index = new DeltaLogFileIndex(told, session);
    StructType schema = (StructType) DataType.fromJson(told.get("schema").asText());
    return new DeltaRelation(index, schema, format(told, schema), session);
  }

  private static ParquetFileFormat format(JsonNode told, StructType schema) {
    if (told.get("physical").isNull()) return new ParquetFileFormat();
    return new DeltaScanFormat(schema, (StructType) DataType.fromJson(told.get("physical").asText()), told.get("byId").asBoolean());
  }

  /** The same scan over another index: a pinned version, a subset of files, a hidden file number. */
  public static LogicalRelation over(LogicalRelation was, DeltaLogFileIndex index, scala.collection.immutable.Seq output) {
    HadoopFsRelation old = (HadoopFsRelation) was.relation();
    HadoopFsRelation made = new HadoopFsRelation(index, index.partitionSchema(), old.dataSchema(), scala.Option.empty(), old.fileFormat(),
        old.options(), (SparkSession) old.sparkSession());
    return new LogicalRelation(made, output, was.catalogTable(), was.isStreaming(), scala.Option.empty());
  }

  /** The frame with its scans of the table at a root, in subqueries too, held to a snapshot. */
  public static Dataset pinned(Dataset data, String root, String snapshot) {
    TreeNode plan = ((QueryPlan) data.queryExecution().analyzed()).transformWithSubqueries(new PinRule.ToPinned(root, snapshot));
    return Dataset.ofRows((SparkSession) data.sparkSession(), (LogicalPlan) plan);
  }

  /** Whether a frame depends on the newest rows of the table at a root, in a subquery too. A version that was named never changes. */
  public static boolean follows(Dataset data, String root) {
    LogicalPlan plan = data.queryExecution().analyzed();
    java.util.ArrayList plans = new java.util.ArrayList(CollectionConverters.asJava(plan.subqueriesAll()));
    plans.add(plan);
    java.util.Iterator each = plans.iterator();
    while (each.hasNext()) {
      java.util.Iterator leaves = CollectionConverters.asJava(((LogicalPlan) each.next()).collectLeaves()).iterator();
      while (leaves.hasNext()) {
        DeltaLogFileIndex index = indexOf(leaves.next());
        if (index != null && index.version == null && index.root.equals(root)) return true;
      }
    }
    return false;
  }

  /** The index of one of our scans, or null. Spark copies relations when it prunes nested columns, so the index is what tells. */
  public static DeltaLogFileIndex indexOf(Object plan) {
    if (!(plan instanceof LogicalRelation) || !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) return null;
    Object location = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
    return location instanceof DeltaLogFileIndex ? (DeltaLogFileIndex) location : null;
  }
}
