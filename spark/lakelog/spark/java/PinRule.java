package lakelog;

import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

/** All scans of a table in one query read one version, also where another writer commits while the query is planned. */
public class PinRule extends Rule {
  public TreeNode apply(TreeNode plan) { return ((QueryPlan) plan).transformWithSubqueries(new ToPinned()); }

  public static class ToPinned extends scala.runtime.AbstractPartialFunction {
    private final java.util.HashMap pins = new java.util.HashMap();
    private final String root;

    public ToPinned() { this.root = null; }

    /** Scans of one table alone, to a snapshot that is known: a statement that changes the table reads one version of it throughout. */
    public ToPinned(String root, String snapshot) {
      this.root = root;
      pins.put(root, new Pin(snapshot));
    }

    public boolean isDefinedAt(Object node) {
      DeltaLogFileIndex index = DeltaRelation.indexOf(node);
      return index != null && index.follows() && (root == null || index.root.equals(root));
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      LogicalRelation relation = (LogicalRelation) node;
      DeltaLogFileIndex index = DeltaRelation.indexOf(node);
      Pin pin = (Pin) pins.get(index.root);
      if (pin == null) {
        pin = new Pin(null);
        pins.put(index.root, pin);
      }
      return DeltaRelation.over(relation, index.pinned(pin), relation.output());
    }
  }
}
