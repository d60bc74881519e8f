package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

/** Plans the row-level commands that Spark parses and resolves but cannot run on a file source. */
public class Strategies extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    java.util.ArrayList plans = new java.util.ArrayList();
    if (plan instanceof DeltaDelete) plans.add(new DeltaDeleteExec((DeltaDelete) plan));
    return Door.seq(plans);
  }
}
