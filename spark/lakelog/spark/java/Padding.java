package lakelog;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.jdk.javaapi.CollectionConverters;

/** The projection that Spark puts over every scan with a char column, to pad what other writers left short. The table is the scan below it. */
public class Padding extends scala.runtime.AbstractPartialFunction {
  private static final String MARK = "readSidePadding";
  private final java.util.HashMap padded = new java.util.HashMap();

  private Padding(Project projection) {
    java.util.Iterator all = CollectionConverters.asJava(projection.projectList()).iterator();
    while (all.hasNext()) {
      Object column = all.next();
      if (column instanceof Alias) padded.put(((Alias) column).exprId(), ((Alias) column).child());
    }
  }

  /** Whether a plan is nothing but that projection over one of our scans. */
  static boolean is(LogicalPlan plan) {
    if (!(plan instanceof Project) || DeltaRelation.indexOf(((Project) plan).child()) == null) return false;
    java.util.List columns = CollectionConverters.asJava(((Project) plan).projectList());
    java.util.List below = CollectionConverters.asJava(((Project) plan).child().output());
    if (columns.size() != below.size()) return false;
    boolean padded = false;
    for (int i = 0; i < columns.size(); i++) {
      Attribute attribute = (Attribute) below.get(i);
      Object column = columns.get(i);
      boolean same = column instanceof Attribute && ((Attribute) column).exprId().equals(attribute.exprId());
      if (!same && !(column instanceof Alias && pads((Alias) column, attribute))) return false;
      padded = padded || !same;
    }
    return padded;
  }

  private static boolean pads(Alias column, Attribute attribute) {
    return column.name().equals(attribute.name()) && column.references().size() == 1 && column.references().contains(attribute)
        && column.child().toString().contains(MARK);
  }

  /** A condition over the padded columns as one over the scan below. */
  static Expression below(LogicalPlan projection, Expression condition) { return (Expression) condition.transform(new Padding((Project) projection)); }

  public boolean isDefinedAt(Object node) { return node instanceof Attribute && padded.containsKey(((Attribute) node).exprId()); }

  public Object applyOrElse(Object node, scala.Function1 otherwise) {
    return isDefinedAt(node) ? padded.get(((Attribute) node).exprId()) : otherwise.apply(node);
  }
}
