package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.classic.SparkSession;

/** Statements that must be refused before Spark acts: its own way would drop the old table first, or write to the metastore alone. */
public class StatementCheck extends scala.runtime.AbstractFunction1 {
  private final SparkSession session;

  public StatementCheck(SparkSession session) { this.session = session; }

  public Object apply(Object node) {
    LogicalPlan plan = (LogicalPlan) node;
    if (plan instanceof CreateTable) refuse("CREATE TABLE", ((CreateTable) plan).tableSpec().provider(), plan);
    if (plan instanceof CreateTableAsSelect) refuse("CREATE TABLE AS SELECT", ((CreateTableAsSelect) plan).tableSpec().provider(), plan);
    if (plan instanceof ReplaceTable) refuse("REPLACE TABLE", ((ReplaceTable) plan).tableSpec().provider(), plan);
    if (plan instanceof ReplaceTableAsSelect) refuse("REPLACE TABLE AS SELECT", ((ReplaceTableAsSelect) plan).tableSpec().provider(), plan);
    return scala.runtime.BoxedUnit.UNIT;
  }

  private void refuse(String statement, scala.Option provider, LogicalPlan plan) {
    if (provider.isEmpty()) return;
    String name = provider.get().toString();
    if (name.equalsIgnoreCase("delta") || name.equalsIgnoreCase("lakelog")) Door.ask(session, "refuse", statement, "", null);
  }
}
