package lakelog;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.Seq;

/** Runs one DELETE: Python decides, with RowSearch as its hands. */
public class DeltaDeleteExec extends SparkPlan {
  private final DeltaDelete command;

  public DeltaDeleteExec(DeltaDelete command) { this.command = command; }

  public Seq output() { return command.output(); }

  public Seq children() { return Door.none(); }

  public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq none) { return this; }

  public InternalRow[] executeCollect() {
    LogicalPlan table = RowCommands.unaliased(command.target);
    RowSearch search = new RowSearch((LogicalRelation) table, RowCommands.unaliased(command.target, command.asked));
    Object rows = Door.ask(search.index.session, "delete", search.index.root, search.describe(), search);
    return new InternalRow[] {new GenericInternalRow(new Object[] {new Long(((Number) rows).longValue())})};
  }

  public org.apache.spark.rdd.RDD doExecute() { throw new UnsupportedOperationException("a command is collected"); }

  public Object productElement(int n) { return command; }

  public int productArity() { return 1; }

  public boolean canEqual(Object other) { return other == this; }

  public String nodeName() { return "DeltaDelete"; }
}
