package lakelog;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * DELETE FROM with the result that delta-spark's users know: num_affected_rows. Analyzer and optimizer see a delete of nothing: they would copy
 * this node as their own class, put a projection under it, or refuse a condition that RowSearch can evaluate.
 */
public class DeltaDelete extends DeleteFromTable {
  private final Seq result;
  final LogicalPlan target;
  final Expression asked;

  public DeltaDelete(LogicalPlan table, Expression condition, Seq result, LogicalPlan target, Expression asked) {
    super(table, condition);
    this.result = result;
    this.target = target;
    this.asked = asked;
  }

  static DeltaDelete of(DeleteFromTable delete) {
    LogicalPlan nothing = new LocalRelation(Door.none(), Door.none(), false, scala.Option.empty());
    return new DeltaDelete(nothing, Literal.TrueLiteral(), result(), delete.table(), delete.condition());
  }

  static Seq result() {
    return org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(new StructType().add("num_affected_rows", DataTypes.LongType, true));
  }

  public Seq output() { return result; }

  public DeleteFromTable withNewChildInternal(LogicalPlan child) { return new DeltaDelete(child, condition(), result, target, asked); }

  /** Spark copies nodes by their constructor: what it takes beyond the two parts of DeleteFromTable. */
  public Seq otherCopyArgs() {
    java.util.ArrayList more = new java.util.ArrayList();
    more.add(result);
    more.add(target);
    more.add(asked);
    return Door.seq(more);
  }

  public String nodeName() { return "DeltaDelete"; }
}
