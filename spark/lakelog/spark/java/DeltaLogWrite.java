package lakelog;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.AlwaysTrue;
import org.apache.spark.sql.sources.InsertableRelation;

/** INSERT INTO and INSERT OVERWRITE on a table of the catalog, and writeTo. */
public class DeltaLogWrite implements SupportsOverwrite, V1Write, InsertableRelation {
  private final String root;
  private final boolean newest;
  private final String options;
  private final String name;
  private final SparkSession session;
  private String mode = "Append";

  public DeltaLogWrite(String root, boolean newest, String options, String name, SparkSession session) {
    this.root = root;
    this.newest = newest;
    this.options = options;
    this.name = name;
    this.session = session;
  }

  public WriteBuilder truncate() {
    mode = "Overwrite";
    return this;
  }

  public WriteBuilder overwrite(org.apache.spark.sql.sources.Filter[] where) {
    if (where.length > 0 && !(where.length == 1 && where[0] instanceof AlwaysTrue)) {
      Door.ask(session, "refuse", "INSERT OVERWRITE of a part of the table", name, null);
    }
    return truncate();
  }

  public Write build() {
    if (!newest) Door.ask(session, "refuse", "a write to an old version", name, null);
    return this;
  }

  public InsertableRelation toInsertableRelation() { return this; }

  public void insert(org.apache.spark.sql.Dataset data, boolean overwrite) { Door.ask(session, "insert", root, mode + "\n" + options, data); }
}
