package lakelog;

import org.apache.spark.sql.classic.SparkSession;

/** Makes one of our rules for each session that Spark builds from the extensions. */
public class Builder extends scala.runtime.AbstractFunction1 {
  private final String kind;

  public Builder(String kind) { this.kind = kind; }

  public Object apply(Object session) {
    if (kind.equals("resolution")) return new Resolution();
    if (kind.equals("commands")) return new RowCommands();
    if (kind.equals("pin")) return new PinRule();
    if (kind.equals("statements")) return new Statements((SparkSession) session);
    if (kind.equals("check")) return new StatementCheck((SparkSession) session);
    return new Strategies();
  }
}
