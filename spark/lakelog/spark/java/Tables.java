package lakelog;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Names of tables and what the session catalog's metastore knows of them. Of a Delta table it knows the place; the log says the rest. */
public class Tables {
  /** What a name stands for, as JSON: its parts and kind; of a table its provider and location; of a free name the location it would get. */
  public static String describe(SparkSession session, String name) throws Exception {
    Seq parts = session.sessionState().sqlParser().parseMultipartIdentifier(name);
    java.util.HashMap told = new java.util.HashMap();
    told.put("parts", CollectionConverters.asJava(parts));
    told.put("kind", kind(session, parts, told));
    return Door.json(told);
  }

  private static String kind(SparkSession session, Seq parts, java.util.Map told) throws Exception {
    if (Names.byPath(parts)) return "path";
    SessionCatalog catalog = session.sessionState().catalog();
    if (catalog.isTempView(parts)) return "temporary view";
    CatalogManager catalogs = session.sessionState().catalogManager();
    int n = parts.length();
    boolean named = n > 1 && catalogs.isCatalogRegistered(parts.apply(0).toString());
    String owner = n > 2 || named ? parts.apply(0).toString() : catalogs.currentCatalog().name();
    told.put("catalog", owner);
    if (!owner.equalsIgnoreCase("spark_catalog") || n > 3 || (n == 2 && named)) return "elsewhere";
    String database = n > 1 ? parts.apply(n - 2).toString() : catalog.getCurrentDatabase();
    String table = parts.apply(n - 1).toString();
    told.put("database", database);
    told.put("table", table);
    if (!catalog.databaseExists(database)) return "no database";
    TableIdentifier identifier = new TableIdentifier(table, scala.Option.apply(database));
    try {
      CatalogTable found = catalog.getTableMetadata(identifier);
      if (found.tableType().name().contains("VIEW")) return "view";
      told.put("provider", found.provider().isDefined() ? found.provider().get() : "hive");
      String provider = told.get("provider").toString();
      told.put("delta", Boolean.valueOf(Names.isDelta(provider) || provider.equalsIgnoreCase("delta")));
      told.put("managed", Boolean.valueOf(found.tableType().equals(CatalogTableType.MANAGED())));
      told.put("location", new Path(found.location()).toString());
      return "table";
    } catch (NoSuchTableException e) {
      told.put("location", new Path(catalog.defaultTablePath(identifier)).toString());
      return "absent";
    }
  }

  /** Enter a Delta table by its place alone. */
  public static void register(SparkSession session, String database, String table, String location, boolean managed) throws Exception {
    Object[] place = new Object[] {scala.Option.apply(new Path(location).toUri())};
    Object storage = filled(CatalogStorageFormat.empty(), "copy", place);
    TableIdentifier identifier = new TableIdentifier(table, scala.Option.apply(database));
    CatalogTableType type = managed ? CatalogTableType.MANAGED() : CatalogTableType.EXTERNAL();
    Object companion = Class.forName(CatalogTable.class.getName() + "$").getField("MODULE$").get(null);
    Object entry = filled(companion, "apply", new Object[] {identifier, type, storage, new StructType(), scala.Option.apply("delta")});
    session.sessionState().catalog().createTable((CatalogTable) entry, false, false);
  }

  /** Call a method of a case class with its defaults for all parameters after the first ones; Spark's minors differ in how many there are. */
  private static Object filled(Object owner, String name, Object[] first) throws Exception {
    java.lang.reflect.Method longest = null;
    java.lang.reflect.Method[] all = owner.getClass().getMethods();
    for (int i = 0; i < all.length; i++) {
      boolean longer = longest == null || all[i].getParameterCount() > longest.getParameterCount();
      if (all[i].getName().equals(name) && longer) longest = all[i];
    }
    Object[] given = new Object[longest.getParameterCount()];
    for (int i = 0; i < given.length; i++) {
      given[i] = i < first.length ? first[i] : owner.getClass().getMethod(name + "$default$" + (i + 1), new Class[0]).invoke(owner, new Object[0]);
    }
    return longest.invoke(owner, given);
  }

  /** What is in a folder beside a Delta log: the first name, null for nothing. */
  public static String stranger(SparkSession session, String location) throws Exception {
    Path path = new Path(location);
    FileSystem files = path.getFileSystem(session.sessionState().newHadoopConf());
    if (!files.exists(path)) return null;
    FileStatus[] found = files.listStatus(path);
    for (int i = 0; i < found.length; i++) {
      if (!found[i].getPath().getName().equals("_delta_log")) return found[i].getPath().getName();
    }
    return null;
  }

  /** A schema of one field whose type is written in SQL, as JSON. */
  public static String field(SparkSession session, String name, String type) throws Exception {
    return new StructType().add(name, session.sessionState().sqlParser().parseDataType(type)).json();
  }

  /** The schema as tables hold it: strings with a length are strings, and their field's metadata has the length. */
  public static String stored(String schema) {
    return CharVarcharUtils.replaceCharVarcharWithStringInSchema((StructType) DataType.fromJson(schema)).json();
  }
}
