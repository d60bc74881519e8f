package lakelog;

import org.apache.spark.rdd.PartitionPruningRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import scala.jdk.javaapi.CollectionConverters;

/** The rows that failed a check, looked for a second time. */
public class Violators {
  /** What the message of a failed check starts with. */
  private static final String MARK = "lakelog constraint ";

  /**
   * Up to `limit` rows for which the condition is not true, as JSON in an array: of those columns, from one partition of what the frame is checked
   * from. None where the rows are not at hand: a frame without checks, or one whose partitions come from other jobs.
   */
  public static String violators(Dataset frame, String condition, String columns, int partition, int limit, String description) throws Exception {
    SparkSession session = (SparkSession) frame.sparkSession();
    LogicalPlan unchecked = unchecked(frame.queryExecution().analyzed());
    if (unchecked == null) return "[]";
    java.util.ArrayList one = new java.util.ArrayList();
    one.add(StoredExpressions.parsed(session, columns + " AS violator"));
    Expression violated = StoredExpressions.parsed(session, "(\n" + condition + "\n) IS NOT TRUE");
    Dataset found = StoredExpressions.analysed(session, new Project(Door.seq(one), new Filter(violated, unchecked)));
    if (crossesPartitions(found.queryExecution().executedPlan())) return "[]";
    LocalProperties described = LocalProperties.described(session, description);
    try {
      RDD rows = found.rdd();
      java.util.ArrayList texts = new java.util.ArrayList();
      if (partition < rows.getNumPartitions()) {
        // A set of Scala's as the function that picks: it goes with the RDD to the executors, which have none of our classes.
        scala.Function1 picked = CollectionConverters.asScala(java.util.Collections.singleton(new Integer(partition))).toSet();
        Object[] taken = (Object[]) PartitionPruningRDD.create(rows, picked).take(limit);
        for (int i = 0; i < taken.length; i++) texts.add(((Row) taken[i]).getString(0));
      }
      return Door.json(texts);
    } finally {
      described.end();
    }
  }

  private static LogicalPlan unchecked(LogicalPlan plan) {
    if (plan instanceof Project && checks(CollectionConverters.asJava(plan.expressions()).iterator())) return ((Project) plan).child();
    return plan.children().length() == 1 ? unchecked((LogicalPlan) plan.children().apply(0)) : null;
  }

  private static boolean checks(java.util.Iterator expressions) {
    while (expressions.hasNext()) {
      Expression node = (Expression) expressions.next();
      if (node instanceof Literal && ((Literal) node).value() != null && ((Literal) node).value().toString().startsWith(MARK)) return true;
      if (checks(CollectionConverters.asJava(node.children()).iterator())) return true;
    }
    return false;
  }

  private static boolean crossesPartitions(SparkPlan plan) {
    if (plan instanceof Exchange || plan instanceof AdaptiveSparkPlanExec) return true;
    java.util.Iterator children = CollectionConverters.asJava(plan.children()).iterator();
    while (children.hasNext()) if (crossesPartitions((SparkPlan) children.next())) return true;
    return false;
  }
}
