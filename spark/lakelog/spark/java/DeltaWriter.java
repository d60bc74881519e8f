package lakelog;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.BasicWriteJobStatsTracker;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.datasources.FileFormatWriter;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;
import org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Writes a frame's rows as Parquet files under a table's root, inside an SQL execution of its own, so that the UI shows the plan. */
public class DeltaWriter extends scala.runtime.AbstractFunction0 {
  private final Dataset data;
  private final String root;
  private final int partitionColumns;
  private final StructType physical;
  private final scala.collection.immutable.Map options;

  private DeltaWriter(Dataset data, String root, int partitionColumns, StructType physical, scala.collection.immutable.Map options) {
    this.data = data;
    this.root = root;
    this.partitionColumns = partitionColumns;
    this.physical = physical;
    this.options = options;
  }

  /** The last `partitionColumns` columns become folders, the others are written under the names of `physical`, a schema as JSON, or their own
      where it is null. Answers "uri TAB size TAB modification time NEWLINE" per file. */
  public static String write(Dataset data, String root, int partitionColumns, String physical, java.util.Map options, String description) {
    LocalProperties described = LocalProperties.described((SparkSession) data.sparkSession(), description);
    try {
      scala.collection.immutable.Map given = org.apache.spark.api.python.PythonUtils.toScalaMap(options);
      StructType names = physical == null ? null : (StructType) DataType.fromJson(physical);
      DeltaWriter writer = new DeltaWriter(data, root, partitionColumns, names, given);
      return (String) SQLExecution.withNewExecutionId(data.queryExecution(), scala.Option.apply(description), writer);
    } finally {
      described.end();
    }
  }

  public Object apply() {
    QueryExecution query = data.queryExecution();
    SparkSession session = (SparkSession) data.sparkSession();
    DeltaCommitter committer = new DeltaCommitter(java.util.UUID.randomUUID().toString(), root);
    Seq output = query.analyzed().output();
    java.util.ArrayList folders = new java.util.ArrayList();
    for (int i = output.length() - partitionColumns; i < output.length(); i++) folders.add((Attribute) output.apply(i));
    scala.collection.immutable.Map nowhere = new scala.collection.immutable.HashMap();
    Configuration hadoop = session.sessionState().newHadoopConfWithOptions(options);
    java.util.ArrayList trackers = new java.util.ArrayList();
    scala.collection.immutable.Map metrics = BasicWriteJobStatsTracker.metrics();
    trackers.add(new BasicWriteJobStatsTracker(new SerializableConfiguration(hadoop), metrics));
    LocalProperties parquet = LocalProperties.parquet(session);
    try {
      FileFormatWriter.write(session, query.executedPlan(), new DeltaParquet(physical), committer, new FileFormatWriter.OutputSpec(root, nowhere, output),
          hadoop, Door.seq(folders), scala.Option.empty(), Door.seq(trackers), options, 0);
    } finally {
      parquet.end();
    }
    show(session, query, metrics);
    return committer.lines();
  }

  /** FileFormatWriter counts rows, files and bytes but belongs to no plan node: the UI gets one above the plan that shows them. */
  private void show(SparkSession session, QueryExecution query, scala.collection.immutable.Map metrics) {
    java.util.ArrayList shown = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(metrics.values()).iterator();
    while (all.hasNext()) {
      SQLMetric metric = (SQLMetric) all.next();
      shown.add(new SQLMetricInfo((String) metric.name().get(), metric.id(), metric.metricType()));
    }
    java.util.ArrayList below = new java.util.ArrayList();
    below.add(SparkPlanInfo.fromSparkPlan(query.executedPlan()));
    scala.collection.immutable.Map nothing = new scala.collection.immutable.HashMap();
    SparkPlanInfo node = new SparkPlanInfo("WriteDelta", "WriteDelta " + root, Door.seq(below), nothing, Door.seq(shown));
    long execution = Long.parseLong(session.sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY()));
    session.sparkContext().listenerBus().post(new SparkListenerSQLAdaptiveExecutionUpdate(execution, query.toString(), node));
  }
}
