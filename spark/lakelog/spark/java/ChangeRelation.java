package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A read of the change data feed until Resolution puts the native scans in its place; a data source may hand out a relation alone. */
public class ChangeRelation extends BaseRelation {
  private final SQLContext context;
  private final JsonNode told;

  public ChangeRelation(SQLContext context, String description) {
    this.context = context;
    this.told = Door.parse(description);
  }

  public SQLContext sqlContext() { return context; }

  public StructType schema() { return (StructType) DataType.fromJson(told.get("schema").asText()); }

  /** Whether a description is that of changes: {"schema", "scans": [{"snapshot", "relation"}]}. */
  static boolean describedBy(String description) { return description.startsWith("{\"scans\":"); }

  /** The scans under the attributes that were given out. There is always a node above them: Spark would write into a bare scan. */
  LogicalPlan plan(Seq output) {
    java.util.ArrayList scans = new java.util.ArrayList();
    JsonNode all = told.get("scans");
    for (int i = 0; i < all.size(); i++) scans.add(scan((JsonNode) all.get(i), i == 0 ? output : renewed(output)));
    if (scans.isEmpty()) return new LocalRelation(output, Door.none(), false, scala.Option.empty());
    return scans.size() == 1 ? (LogicalPlan) new Project(output, (LogicalPlan) scans.get(0)) : (LogicalPlan) new Union(Door.seq(scans), false, false);
  }

  private LogicalRelation scan(JsonNode one, Seq output) {
    DeltaRelation relation = DeltaRelation.described(one.get("relation").asText(), (SparkSession) context.sparkSession());
    LogicalRelation unpinned = new LogicalRelation(relation, output, scala.Option.empty(), false, scala.Option.empty());
    DeltaLogFileIndex index = DeltaRelation.indexOf(unpinned);
    return DeltaRelation.over(unpinned, index.at(one.get("snapshot").asText(), false, null), output);
  }

  private static Seq renewed(Seq output) {
    java.util.ArrayList made = new java.util.ArrayList();
    java.util.Iterator each = CollectionConverters.asJava(output).iterator();
    while (each.hasNext()) made.add(((Attribute) each.next()).newInstance());
    return Door.seq(made);
  }

  /** Whether a table of the catalog was asked for its changes, as spark.read.option("readChangeFeed", "true").table(...) does. */
  static boolean askedOf(DataSourceV2Relation relation) {
    return "true".equalsIgnoreCase(relation.options().get("readChangeFeed")) || "true".equalsIgnoreCase(relation.options().get("readChangeData"));
  }

  /** The changes of a table of the catalog; its own columns keep their attributes. */
  static LogicalPlan of(DataSourceV2Relation relation, DeltaLogTable table) {
    java.util.HashMap options = new java.util.HashMap(relation.options().asCaseSensitiveMap());
    JsonNode told = Door.parse(table.description);
    options.put("path", told.get("root").asText());
    if (!told.get("version").isNull()) options.put("versionAsOf", told.get("version").asText());
    String description = (String) Door.ask(table.session, "read", Door.json(options), null, null);
    ChangeRelation changes = new ChangeRelation(table.session.sqlContext(), description);
    java.util.HashMap given = new java.util.HashMap();
    java.util.Iterator each = CollectionConverters.asJava(relation.output()).iterator();
    while (each.hasNext()) {
      Attribute attribute = (Attribute) each.next();
      given.put(attribute.name(), attribute);
    }
    StructType schema = changes.schema();
    java.util.ArrayList output = new java.util.ArrayList();
    for (int i = 0; i < schema.length(); i++) {
      StructField field = schema.apply(i);
      Attribute known = (Attribute) given.get(field.name());
      output.add(new AttributeReference(field.name(), field.dataType(), field.nullable(), field.metadata(),
          known == null ? NamedExpression$.MODULE$.newExprId() : known.exprId(), Door.none()));
    }
    return changes.plan(Door.seq(output));
  }
}
