package lakelog;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** Frames that PySpark has no call for. */
public class Frames {
  /** The rows of a relation as Python describes it. */
  public static Dataset of(String description, SparkSession session) {
    return session.baseRelationToDataFrame(DeltaRelation.described(description, session));
  }

  /** The name that the frame gave itself with alias(), or null. */
  public static String alias(Dataset data) {
    LogicalPlan plan = data.queryExecution().analyzed();
    return plan instanceof SubqueryAlias ? ((SubqueryAlias) plan).alias() : null;
  }

  /** Cached frames over a table's files are computed anew, whether or not Hadoop has a filesystem for its root. */
  public static void refreshCached(SparkSession session, String root) {
    session.sharedState().cacheManager().recacheByPath(session, new Path(root), new NoFilesystem());
  }

  /** The rows shuffled so that each task gets about so many bytes, those of equal values in some columns together where that fits. */
  public static Dataset rebalanced(Dataset data, java.util.List columns, long bytes) {
    LogicalPlan plan = data.queryExecution().analyzed();
    java.util.ArrayList keys = new java.util.ArrayList();
    java.util.Iterator output = CollectionConverters.asJava(plan.output()).iterator();
    while (output.hasNext()) {
      Attribute attribute = (Attribute) output.next();
      if (columns.contains(attribute.name())) keys.add(attribute);
    }
    LogicalPlan shuffled = new RebalancePartitions(Door.seq(keys), plan, scala.Option.empty(), scala.Option.apply(new Long(bytes)));
    return Dataset.ofRows((SparkSession) data.sparkSession(), shuffled);
  }

  /** The columns of a frame that are a null by its plan: what Spark puts into an INSERT for columns that the statement did not name. */
  public static java.util.List nullColumns(Dataset data) {
    LogicalPlan plan = data.queryExecution().logical();
    java.util.ArrayList names = new java.util.ArrayList();
    if (!(plan instanceof Project)) return names;
    java.util.Iterator columns = CollectionConverters.asJava(((Project) plan).projectList()).iterator();
    while (columns.hasNext()) {
      Object column = columns.next();
      if (column instanceof Alias && isNull(((Alias) column).child())) names.add(((Alias) column).name());
    }
    return names;
  }

  private static boolean isNull(Expression expression) {
    while (expression instanceof Cast) expression = ((Cast) expression).child();
    return expression instanceof Literal && ((Literal) expression).value() == null;
  }
}
