package lakelog;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

/** format("delta") by path. A TableProvider without capabilities keeps by-path I/O on the V1 interfaces, and DDL on the catalog's road. */
public class DeltaSource implements DataSourceRegister, TableProvider, RelationProvider, CreatableRelationProvider, StreamSourceProvider, StreamSinkProvider {
  public String shortName() { return "delta"; }

  public StructType inferSchema(CaseInsensitiveStringMap options) { return new StructType(); }

  public Transform[] inferPartitioning(CaseInsensitiveStringMap options) { return new Transform[0]; }

  /** Spark would parse the names given to partitionBy as SQL before it handed them over. */
  public boolean supportsExternalMetadata() {
    Door.check();
    return false;
  }

  public Table getTable(StructType schema, Transform[] partitions, java.util.Map properties) {
    Door.check();
    return new NoTable(schema);
  }

  /** Spark asks before a write; what a table can hold is said by Python, with the remedy. */
  public boolean supportsDataType(org.apache.spark.sql.types.DataType type) { return true; }

  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map options) {
    SparkSession session = (SparkSession) context.sparkSession();
    String told = (String) Door.ask(session, "read", Door.json(options), null, null);
    return ChangeRelation.describedBy(told) ? (BaseRelation) new ChangeRelation(context, told) : (BaseRelation) DeltaRelation.described(told, session);
  }

  public BaseRelation createRelation(SQLContext context, SaveMode mode, scala.collection.immutable.Map options, org.apache.spark.sql.Dataset data) {
    SparkSession session = (SparkSession) context.sparkSession();
    return DeltaRelation.described((String) Door.ask(session, "write", Door.json(options), mode.name(), data), session);
  }

  public scala.Tuple2 sourceSchema(SQLContext context, scala.Option schema, String name, scala.collection.immutable.Map options) {
    streams(context, "reading a stream", options);
    return null;
  }

  public Source createSource(SQLContext context, String metadata, scala.Option schema, String name, scala.collection.immutable.Map options) {
    streams(context, "reading a stream", options);
    return null;
  }

  public Sink createSink(SQLContext context, scala.collection.immutable.Map options, Seq partitions, OutputMode mode) {
    streams(context, "writing a stream", options);
    return null;
  }

  private static void streams(SQLContext context, String what, scala.collection.immutable.Map options) {
    scala.Option path = options.get("path");
    Door.ask((SparkSession) context.sparkSession(), "refuse", what, path.isDefined() ? path.get().toString() : "", null);
  }
}
