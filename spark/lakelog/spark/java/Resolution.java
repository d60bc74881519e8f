package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/** Reads: while Spark resolves a query, the catalog's table becomes the native relation, under the attributes already given out. */
public class Resolution extends Rule {
  public TreeNode apply(TreeNode plan) { return ((LogicalPlan) plan).resolveOperatorsUp(new ToRelation()); }

  public static class ToRelation extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return isChanges(node) || (node instanceof DataSourceV2Relation && ((DataSourceV2Relation) node).table() instanceof DeltaLogTable);
    }

    private static boolean isChanges(Object node) {
      return node instanceof LogicalRelation && ((LogicalRelation) node).relation() instanceof ChangeRelation;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (node instanceof OverwritePartitionsDynamic && isDefinedAt(((OverwritePartitionsDynamic) node).productElement(0))) {
        DeltaLogTable table = (DeltaLogTable) ((DataSourceV2Relation) ((OverwritePartitionsDynamic) node).productElement(0)).table();
        Door.ask(table.session, "refuse", "a dynamic partition overwrite", table.name(), null);
      }
      if (!isDefinedAt(node)) return otherwise.apply(node);
      if (isChanges(node)) return ((ChangeRelation) ((LogicalRelation) node).relation()).plan(((LogicalRelation) node).output());
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      DeltaLogTable table = (DeltaLogTable) relation.table();
      if (ChangeRelation.askedOf(relation)) return ChangeRelation.of(relation, table);
      SparkSession session = table.session;
      return new LogicalRelation(DeltaRelation.described(table.description, session),
          relation.output(), scala.Option.empty(), false, scala.Option.empty());
    }
  }
}
