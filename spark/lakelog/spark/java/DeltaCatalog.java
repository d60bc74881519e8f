package lakelog;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;

/** delta.`path`, tables of the metastore whose provider is Delta, and time travel in SQL; all else goes to Spark's own session catalog. */
public class DeltaCatalog extends DelegatingCatalogExtension {
  private static SparkSession session() { return (SparkSession) SparkSession.active(); }

  private static boolean byPath(Identifier ident) {
    return ident.namespace().length == 1 && Names.isDelta(ident.namespace()[0]) && Names.isPath(ident.name());
  }

  private Table table(String path, String name, String travel) {
    return new DeltaLogTable((String) Door.ask(session(), "table", path, travel, null), name, session());
  }

  private Table load(Identifier ident, String travel) throws NoSuchTableException {
    if (byPath(ident)) return table(ident.name(), "delta.`" + ident.name() + "`", travel);
    Table found = super.loadTable(ident);
    if (!(found instanceof V1Table) || ((V1Table) found).catalogTable().provider().isEmpty()) return found;
    CatalogTable known = ((V1Table) found).catalogTable();
    return Names.isDelta(known.provider().get()) ? table(new Path(known.location()).toString(), found.name(), travel) : found;
  }

  public Table loadTable(Identifier ident) throws NoSuchTableException { return load(ident, null); }

  public Table loadTable(Identifier ident, java.util.Set writePrivileges) throws NoSuchTableException {
    Table found = load(ident, null);
    boolean replaced = found instanceof V1Table && writePrivileges.contains(TableWritePrivilege.DELETE) && saving();
    return replaced ? new NoTable(found.schema()) : found;
  }

  /**
   * Whether saveAsTable asks. In mode overwrite it drops a table of Spark's own before it says what shall take its place; for any other
   * table it plans a REPLACE TABLE AS SELECT, which Statements refuses.
   */
  private static boolean saving() {
    StackTraceElement[] stack = new Throwable().getStackTrace();
    for (int i = 0; i < stack.length && i < 8; i++) {
      if (stack[i].getClassName().startsWith("org.apache.spark.sql.classic.DataFrameWriter")) return true;
    }
    return false;
  }

  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    Table found = load(ident, "version\n" + version);
    return found instanceof DeltaLogTable ? found : super.loadTable(ident, version);
  }

  public Table loadTable(Identifier ident, long microseconds) throws NoSuchTableException {
    Table found = load(ident, "timestamp\n" + microseconds);
    return found instanceof DeltaLogTable ? found : super.loadTable(ident, microseconds);
  }

  public boolean tableExists(Identifier ident) {
    if (!byPath(ident)) return super.tableExists(ident);
    return Boolean.TRUE.equals(Door.ask(session(), "exists", ident.name(), null, null));
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    Table table = load(ident, null);
    if (!(table instanceof DeltaLogTable)) return super.alterTable(ident, changes);
    // delta.`path@v1` by way of IDENTIFIER('...'), which Statements does not see
    if (((DeltaLogTable) table).isPinned()) Door.ask(session(), "newest", ident.name(), "ALTER TABLE", null);
    if (changes.length > 0) Door.ask(session(), "alter", ((DeltaLogTable) table).root(), TableChanges.json(changes), null);
    return load(ident, null);
  }

  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, java.util.Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (byPath(ident) || Names.isDelta(properties.get("provider"))) Door.ask(session(), "refuse", "CREATE TABLE", ident.toString(), null);
    return super.createTable(ident, columns, partitions, properties);
  }

  public boolean dropTable(Identifier ident) {
    if (byPath(ident)) Door.ask(session(), "refuse", "DROP TABLE", ident.toString(), null);
    return super.dropTable(ident);
  }

  public boolean purgeTable(Identifier ident) {
    if (byPath(ident)) Door.ask(session(), "refuse", "DROP TABLE", ident.toString(), null);
    return super.purgeTable(ident);
  }

  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    if (load(from, null) instanceof DeltaLogTable) Door.ask(session(), "refuse", "ALTER TABLE RENAME", from.toString(), null);
    super.renameTable(from, to);
  }
}
