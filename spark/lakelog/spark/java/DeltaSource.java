package lakelog;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** format("delta") by path. A TableProvider without capabilities keeps by-path I/O on the V1 interfaces, and DDL on the catalog's road. */
public class DeltaSource implements DataSourceRegister, TableProvider, RelationProvider, CreatableRelationProvider {
  public String shortName() { return "delta"; }

  public StructType inferSchema(CaseInsensitiveStringMap options) { return new StructType(); }

  public Transform[] inferPartitioning(CaseInsensitiveStringMap options) { return new Transform[0]; }

  public boolean supportsExternalMetadata() { return true; }

  public Table getTable(StructType schema, Transform[] partitions, java.util.Map properties) { return new NoTable(schema); }

  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map options) {
    SparkSession session = (SparkSession) context.sparkSession();
    return DeltaRelation.described((String) Door.ask(session, "read", Door.json(options), null, null), options, session);
  }

  public BaseRelation createRelation(SQLContext context, SaveMode mode, scala.collection.immutable.Map options, org.apache.spark.sql.Dataset data) {
    SparkSession session = (SparkSession) context.sparkSession();
    return DeltaRelation.described((String) Door.ask(session, "write", Door.json(options), mode.name(), data), options, session);
  }
}
