package lakelog;

import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Which names mean Delta, and which statements on a table are served as Spark plans them. */
public class Names {
  /** Whether delta-spark's jar is on the class path: the name delta is its own then. */
  public static volatile boolean shared;

  static boolean isDelta(Object provider) {
    return provider != null && ((!shared && "delta".equalsIgnoreCase(provider.toString())) || "lakelog".equalsIgnoreCase(provider.toString()));
  }

  static boolean isPath(String name) { return name.startsWith("/") || name.contains(":/"); }

  /** delta.`path`, also behind spark_catalog. */
  static boolean byPath(Seq parts) {
    int n = parts.length();
    if (n < 2 || n > 3 || (n == 3 && !parts.apply(0).toString().equalsIgnoreCase("spark_catalog"))) return false;
    return isDelta(parts.apply(n - 2)) && isPath(parts.apply(n - 1).toString());
  }

  private static final String[] ALTERATIONS = {"ADD COLUMN", "DROP COLUMN", "RENAME COLUMN", "ALTER COLUMN", "CHANGE COLUMN", "REPLACE COLUMNS",
      "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD CONSTRAINT ... CHECK", "DROP CONSTRAINT", "DROP FEATURE", "CLUSTER BY"};

  static boolean isServed(String command) {
    for (int i = 0; i < ALTERATIONS.length; i++) {
      if (command.startsWith("ALTER TABLE ... " + ALTERATIONS[i])) return true;
    }
    return command.startsWith("DESCRIBE") || command.startsWith("SHOW CREATE TABLE") || command.startsWith("SHOW TBLPROPERTIES")
        || command.startsWith("SHOW COLUMNS") || command.startsWith("REFRESH");
  }

  static String quoted(Seq parts) {
    StringBuilder text = new StringBuilder();
    java.util.Iterator each = CollectionConverters.asJava(parts).iterator();
    while (each.hasNext()) {
      String part = each.next().toString();
      if (text.length() > 0) text.append('.');
      text.append(part.matches("[A-Za-z0-9_]+") ? part : "`" + part.replace("`", "``") + "`");
    }
    return text.toString();
  }
}
