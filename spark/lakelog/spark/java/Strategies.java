package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

/** Plans the row-level commands that Spark parses and resolves but cannot run on a file source, and scans that the Arrow engine serves. */
public class Strategies extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    java.util.ArrayList plans = new java.util.ArrayList();
    if (plan instanceof DeltaDelete) plans.add(new DeltaDeleteExec((DeltaDelete) plan));
    SparkPlan scan = ArrowScan.planned(plan);
    if (scan != null) plans.add(scan);
    return Door.seq(plans);
  }
}
