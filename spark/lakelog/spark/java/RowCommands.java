package lakelog;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.jdk.javaapi.CollectionConverters;

/** After resolution: DELETE on one of our relations becomes a command with delta-spark's result column; UPDATE and MERGE are refused by name. */
public class RowCommands extends Rule {
  public TreeNode apply(TreeNode plan) {
    if (plan instanceof DeleteFromTable && !(plan instanceof DeltaDelete)) {
      DeleteFromTable delete = (DeleteFromTable) plan;
      if (delete.resolved() && target(delete.table()) != null) return DeltaDelete.of(delete);
      DeltaLogFileIndex inside = delete.resolved() ? inside(delete.table()) : null;
      if (inside != null) Door.ask(inside.session, "refuse", "DELETE from a view that is not the table itself", inside.root, null);
    }
    DeltaLogFileIndex refused = plan instanceof UpdateTable ? target(((UpdateTable) plan).table())
        : plan instanceof MergeIntoTable ? target(((MergeIntoTable) plan).targetTable()) : null;
    if (refused != null) Door.ask(refused.session, "refuse", plan instanceof UpdateTable ? "UPDATE" : "MERGE", refused.root, null);
    return plan;
  }

  /** The index of the relation under aliases, or null when it is not ours. */
  static DeltaLogFileIndex target(LogicalPlan table) { return DeltaRelation.indexOf(unaliased(table)); }

  /** The index of one of our scans below a plan, or null where there is none. */
  private static DeltaLogFileIndex inside(LogicalPlan plan) {
    java.util.Iterator leaves = CollectionConverters.asJava(plan.collectLeaves()).iterator();
    while (leaves.hasNext()) {
      DeltaLogFileIndex index = DeltaRelation.indexOf(leaves.next());
      if (index != null) return index;
    }
    return null;
  }

  /** What a name stands for: the plan under aliases, under a view that is nothing but the table, and under Spark's padding of char columns. */
  static LogicalPlan unaliased(LogicalPlan table) {
    while (isName(table) || Padding.is(table)) table = (LogicalPlan) table.children().head();
    return table;
  }

  private static boolean isName(LogicalPlan table) { return table instanceof SubqueryAlias || table instanceof View; }

  /** A condition over what a name stands for as one over the plan that `unaliased` gives. */
  static Expression unaliased(LogicalPlan table, Expression condition) {
    while (isName(table)) table = (LogicalPlan) table.children().head();
    return Padding.is(table) ? Padding.below(table, condition) : condition;
  }
}
