package lakelog;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SetTableProperties;
import org.apache.spark.sql.connector.catalog.TableChange;
import scala.collection.immutable.Seq;

/** An ALTER TABLE that Spark does not know. Spark resolves its table as for SET TBLPROPERTIES and hands the change to the catalog. */
public class OwnStatement extends SetTableProperties {
  private final String change;

  public OwnStatement(LogicalPlan table, String change) {
    super(table, new scala.collection.immutable.HashMap());
    this.change = change;
  }

  public Seq changes() {
    java.util.ArrayList all = new java.util.ArrayList();
    all.add(new Change(change));
    return Door.seq(all);
  }

  public SetTableProperties withNewChildInternal(LogicalPlan table) { return new OwnStatement(table, change); }

  public int productArity() { return 2; }

  public Object productElement(int n) { return n == 0 ? (Object) table() : change; }

  public String nodeName() { return "DeltaAlterTable"; }

  /** What Python made of the statement, on its way back to Python. */
  public static class Change implements TableChange {
    final String json;

    Change(String json) { this.json = json; }
  }
}
