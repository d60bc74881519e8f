package lakelog;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** DELETE FROM with the result that delta-spark's users know: num_affected_rows. */
public class DeltaDelete extends DeleteFromTable {
  private final Seq result;

  public DeltaDelete(LogicalPlan table, Expression condition, Seq result) {
    super(table, condition);
    this.result = result;
  }

  static Seq result() {
    return org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(new StructType().add("num_affected_rows", DataTypes.LongType, true));
  }

  public Seq output() { return result; }

  public DeleteFromTable withNewChildInternal(LogicalPlan child) { return new DeltaDelete(child, condition(), result); }

  /** Spark copies nodes by their constructor: what it takes beyond the two parts of DeleteFromTable. */
  public Seq otherCopyArgs() {
    java.util.ArrayList more = new java.util.ArrayList();
    more.add(result);
    return Door.seq(more);
  }

  public String nodeName() { return "DeltaDelete"; }
}
