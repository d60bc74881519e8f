package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;

/** The refusals of Statements once more on the resolved plan, for names that were not known before, such as IDENTIFIER('t'). */
public class StatementCheck extends scala.runtime.AbstractFunction1 {
  private final Statements statements;

  public StatementCheck(SparkSession session) { this.statements = new Statements(session); }

  public Object apply(Object plan) {
    statements.check((LogicalPlan) plan);
    return scala.runtime.BoxedUnit.UNIT;
  }
}
