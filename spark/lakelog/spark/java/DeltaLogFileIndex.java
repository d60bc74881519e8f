package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** The files of a table, as Spark's planner asks for them. Without a version it follows the table: each plan sees the newest. */
public class DeltaLogFileIndex implements FileIndex {
  public static final String FILE_NUMBER = "__lakelog_file_number";
  final String root;
  final String version;
  final String schemaId;
  final StructType partitions;
  final long bytes;
  final boolean arrow;
  final Pin pin;
  final boolean numbered;
  final byte[] subset;
  final SparkSession session;
  /** Where no pin keeps them: a plan that is made again, as adaptive execution does, has the same scan again. */
  private final java.util.Map scans = Pin.few();

  DeltaLogFileIndex(JsonNode told, SparkSession session) {
    this(told.get("root").asText(), told.get("version").isNull() ? null : told.get("version").asText(), told.get("schemaId").asText(),
        (StructType) DataType.fromJson(told.get("partitions").asText()), told.get("bytes").asLong(), told.get("engine").asText().equals("arrow"),
        session, null, false, null);
  }

  private DeltaLogFileIndex(String root, String version, String schemaId, StructType partitions, long bytes, boolean arrow, SparkSession session,
      Pin pin, boolean numbered, byte[] subset) {
    this.root = root;
    this.version = version;
    this.schemaId = schemaId;
    this.partitions = partitions;
    this.bytes = bytes;
    this.arrow = arrow;
    this.session = session;
    this.pin = pin;
    this.numbered = numbered;
    this.subset = subset;
  }

  /** Every scan of one query that shares the pin reads the same version: that which the first of them found. */
  DeltaLogFileIndex pinned(Pin to) {
    return new DeltaLogFileIndex(root, version, schemaId, partitions, bytes, arrow, session, to, numbered, subset);
  }

  /** The files of one version, with a hidden partition column that numbers them, or only those whose byte in `some` is not 0. */
  DeltaLogFileIndex at(String snapshot, boolean withNumbers, byte[] some) {
    return new DeltaLogFileIndex(root, version, schemaId, partitions, bytes, arrow, session, new Pin(snapshot), withNumbers, some);
  }

  boolean follows() { return version == null && (pin == null || !pin.fixed); }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    FileList.Answer answer = ask(ExpressionText.of(dataFilters));
    return answer.files.directories(answer.keep, partitionFilters, numbered, subset);
  }

  /** The rows of the files that the filters may match, as Python plans to read them; null where there are no such files. */
  LogicalPlan arrowRows(String columns, String types, String filters, Seq partitionFilters) {
    FileList.Answer answer = ask(filters);
    byte[] wanted = answer.files.wanted(answer.keep, partitionFilters, subset);
    Object[] asked = new Object[] {root, version, schemaId, answer.snapshot, columns, types, filters, ArrowScan.packing(session)};
    String request = Door.json(asked);
    String key = request + new String(wanted, java.nio.charset.StandardCharsets.ISO_8859_1);
    java.util.Map plans = pin == null ? scans : pin.scans;
    if (plans.containsKey(key)) return (LogicalPlan) plans.get(key);
    Object made = Door.ask(session, "scan", request, null, wanted);
    LogicalPlan plan = made == null ? null : ((Dataset) made).queryExecution().analyzed();
    plans.put(key, plan);
    return plan;
  }

  private FileList.Answer ask(String filters) {
    if (pin == null) return FileList.ask(this, null, filters);
    synchronized (pin) {
      FileList.Answer answer = FileList.ask(this, pin.snapshot, filters);
      pin.snapshot = answer.snapshot;
      return answer;
    }
  }

  /** All files of the version that this index stands for. */
  public FileList files() { return ask("[]").files; }

  public Seq rootPaths() {
    java.util.ArrayList paths = new java.util.ArrayList();
    paths.add(new Path(root));
    return Door.seq(paths);
  }

  public String[] inputFiles() { return files().uris(); }

  public void refresh() {}

  public long sizeInBytes() { return bytes; }

  public StructType partitionSchema() { return numbered ? partitions.add(FILE_NUMBER, DataTypes.LongType, false) : partitions; }

  public String toString() { return "DeltaLogFileIndex(" + root + (version == null ? "" : "@v" + version) + ")"; }

  public int hashCode() { return root.hashCode(); }

  /** An index with a pin is not the one without: Spark drops a rule's result that equals what was there. */
  public boolean equals(Object o) {
    if (!(o instanceof DeltaLogFileIndex)) return false;
    DeltaLogFileIndex other = (DeltaLogFileIndex) o;
    return root.equals(other.root) && java.util.Objects.equals(version, other.version) && schemaId.equals(other.schemaId)
        && arrow == other.arrow && numbered == other.numbered && java.util.Arrays.equals(subset, other.subset)
        && (pin == other.pin || (pin != null && other.pin != null && pin.fixed && other.pin.fixed && pin.snapshot.equals(other.pin.snapshot)));
  }
}
