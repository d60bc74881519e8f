package lakelog;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InputFileBlockLength;
import org.apache.spark.sql.catalyst.expressions.InputFileBlockStart;
import org.apache.spark.sql.catalyst.expressions.InputFileName;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A scan whose rows come from the executors' Python: Spark's own plan of it, with Arrow batches in the place of its file scan. */
public class ArrowScan extends scala.runtime.AbstractPartialFunction {
  private static final String ROW_INDEX = "_tmp_metadata_row_index";
  private final java.util.HashSet needed = new java.util.HashSet();

  private ArrowScan(SparkPlan root) {
    need(CollectionConverters.asJava(root.output()).iterator());
    above(root);
  }

  /** The plan of projections and filters over one of our relations that the Arrow engine serves; null of anything else. */
  static SparkPlan planned(LogicalPlan plan) {
    LogicalPlan leaf = plan;
    while (leaf instanceof Project || leaf instanceof Filter) leaf = (LogicalPlan) leaf.children().head();
    DeltaLogFileIndex index = DeltaRelation.indexOf(leaf);
    if (index == null || !index.arrow) return null;
    for (LogicalPlan node = plan; node != leaf; node = (LogicalPlan) node.children().head()) refuseFileNames(node.expressions(), index);
    Seq plans = FileSourceStrategy$.MODULE$.apply(plan);
    if (plans.isEmpty()) return null;
    SparkPlan spark = (SparkPlan) plans.head();
    return (SparkPlan) spark.transform(new ArrowScan(spark));
  }

  /** Spark's own scans tell these functions which file they are at, for which others have no way. */
  private static void refuseFileNames(Seq expressions, DeltaLogFileIndex index) {
    java.util.Iterator each = CollectionConverters.asJava(expressions).iterator();
    while (each.hasNext()) {
      Expression expression = (Expression) each.next();
      if (expression instanceof InputFileName || expression instanceof InputFileBlockStart || expression instanceof InputFileBlockLength) {
        Door.ask(index.session, "refuse", expression.prettyName() + "() with the Arrow engine", index.root, null);
      }
      refuseFileNames(expression.children(), index);
    }
  }

  /** What the operators above the scan speak of; the scan itself offers every partition column. */
  private void above(SparkPlan node) {
    if (node instanceof FileSourceScanExec) {
      java.util.Iterator filters = afterwards((FileSourceScanExec) node).iterator();
      while (filters.hasNext()) need(CollectionConverters.asJava(((Expression) filters.next()).references().toSeq()).iterator());
      return;
    }
    need(CollectionConverters.asJava(node.references().toSeq()).iterator());
    java.util.Iterator children = CollectionConverters.asJava(node.children()).iterator();
    while (children.hasNext()) above((SparkPlan) children.next());
  }

  private void need(java.util.Iterator attributes) {
    while (attributes.hasNext()) needed.add(((Attribute) attributes.next()).exprId());
  }

  /** Filters of partition columns that Spark evaluates when the query runs and leaves to the scan. Those that only prune may be dropped. */
  private static java.util.List afterwards(FileSourceScanExec scan) {
    java.util.ArrayList found = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(scan.partitionFilters()).iterator();
    while (all.hasNext()) {
      Expression filter = (Expression) all.next();
      if (SubqueryExpression.hasSubquery(filter) && !(filter instanceof DynamicPruning)) found.add(filter);
    }
    return found;
  }

  private static Seq beforehand(FileSourceScanExec scan) {
    java.util.ArrayList found = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(scan.partitionFilters()).iterator();
    while (all.hasNext()) {
      Expression filter = (Expression) all.next();
      if (!SubqueryExpression.hasSubquery(filter)) found.add(filter);
    }
    return Door.seq(found);
  }

  public boolean isDefinedAt(Object node) { return node instanceof FileSourceScanExec; }

  public Object applyOrElse(Object node, scala.Function1 otherwise) {
    if (!isDefinedAt(node)) return otherwise.apply(node);
    FileSourceScanExec scan = (FileSourceScanExec) node;
    SparkPlan plan = new PlanLater(rows(scan, (DeltaLogFileIndex) ((HadoopFsRelation) scan.relation()).location()));
    java.util.Iterator filters = afterwards(scan).iterator();
    while (filters.hasNext()) plan = new FilterExec((Expression) filters.next(), plan);
    return plan;
  }

  /** Data columns and the row's number come first, then partition columns, then what _metadata says of the file. */
  private LogicalPlan rows(FileSourceScanExec scan, DeltaLogFileIndex index) {
    java.util.List output = CollectionConverters.asJava(scan.output());
    int read = scan.requiredSchema().length();
    int constants = read + index.partitionSchema().length();
    java.util.ArrayList wanted = new java.util.ArrayList();
    java.util.ArrayList columns = new java.util.ArrayList();
    StructType types = new StructType();
    for (int i = 0; i < output.size(); i++) {
      Attribute attribute = (Attribute) output.get(i);
      if (!needed.contains(attribute.exprId())) continue;
      String kind = i < read ? (attribute.name().equals(ROW_INDEX) ? "row_index" : "data") : i < constants ? "partition" : "metadata";
      if (kind.equals("partition") && attribute.name().equals(DeltaLogFileIndex.FILE_NUMBER)) kind = "number";
      columns.add(new String[] {kind, attribute.name()});
      types = types.add("c" + wanted.size(), attribute.dataType(), true);
      wanted.add(attribute);
    }
    if (wanted.isEmpty()) {
      columns.add(new String[] {"rows", ""});
      types = types.add("c0", DataTypes.BooleanType, true);
    }
    LogicalPlan plan = index.arrowRows(Door.json(columns), types.json(), ExpressionText.of(scan.dataFilters()), beforehand(scan));
    if (plan == null) return new LocalRelation(Door.seq(wanted), Door.none(), false, scala.Option.empty());
    java.util.ArrayList named = new java.util.ArrayList();
    for (int i = 0; i < wanted.size(); i++) {
      Attribute attribute = (Attribute) wanted.get(i);
      named.add(new Alias((Expression) plan.output().apply(i), attribute.name(), attribute.exprId(), attribute.qualifier(),
          scala.Option.apply(attribute.metadata()), Door.none()));
    }
    return new Project(Door.seq(named), plan);
  }

  /** What decides how Spark packs files into tasks: bytes at most, bytes that opening a file counts as, tasks at least, tasks at most or null. */
  static Object[] packing(SparkSession session) {
    org.apache.spark.sql.internal.SQLConf conf = session.sessionState().conf();
    scala.Option least = conf.filesMinPartitionNum();
    scala.Option most = conf.filesMaxPartitionNum();
    return new Object[] {new Long(conf.filesMaxPartitionBytes()), new Long(conf.filesOpenCostInBytes()),
        least.isDefined() ? least.get() : new Integer(session.leafNodeDefaultParallelism()), most.isDefined() ? most.get() : null};
  }

  /** A frame with one text per partition: the lines, in their order. */
  public static Dataset tasks(SparkSession session, String lines) {
    java.util.StringTokenizer each = new java.util.StringTokenizer(lines, "\n");
    java.util.ArrayList rows = new java.util.ArrayList();
    while (each.hasMoreTokens()) rows.add(new GenericInternalRow(new Object[] {UTF8String.fromString(each.nextToken())}));
    org.apache.spark.rdd.RDD one = session.sparkContext().parallelize(Door.seq(rows), rows.size(), scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
    return session.internalCreateDataFrame(one, new StructType().add("task", DataTypes.StringType, false), false);
  }
}
