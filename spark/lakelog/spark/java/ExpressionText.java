package lakelog;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A resolved expression as JSON: {"node": class, "type", "children"} with "name" for attributes and struct fields, "value" for literals.
 * Unlike Catalyst's toJSON the values are Catalyst's own (microseconds, days), not texts in the session's zone.
 */
public class ExpressionText {
  public static String of(Seq expressions) {
    java.util.ArrayList all = new java.util.ArrayList();
    java.util.Iterator each = CollectionConverters.asJava(expressions).iterator();
    while (each.hasNext()) all.add(node((Expression) each.next()));
    return Door.json(all);
  }

  public static java.util.Map node(Expression expression) {
    java.util.LinkedHashMap told = new java.util.LinkedHashMap();
    told.put("node", expression.getClass().getSimpleName());
    told.put("type", expression.resolved() ? expression.dataType().typeName() : null);
    if (expression instanceof AttributeReference) {
      AttributeReference attribute = (AttributeReference) expression;
      // _metadata.file_path is an attribute of that name too, whatever columns the table has
      if (attribute.metadata().contains("__metadata_col")) told.put("node", "Metadata");
      else told.put("name", attribute.name());
    }
    if (expression instanceof Literal) told.put("value", value(((Literal) expression).value()));
    if (expression instanceof InSet) {
      java.util.ArrayList values = new java.util.ArrayList();
      java.util.Iterator set = CollectionConverters.asJava(((InSet) expression).hset()).iterator();
      while (set.hasNext()) values.add(value(set.next()));
      told.put("value", values);
    }
    if (expression instanceof GetStructField) {
      GetStructField field = (GetStructField) expression;
      DataType parent = field.child().dataType();
      told.put("name", ((StructType) parent).apply(field.ordinal()).name());
    }
    java.util.ArrayList children = new java.util.ArrayList();
    java.util.Iterator each = CollectionConverters.asJava(expression.children()).iterator();
    while (each.hasNext()) children.add(node((Expression) each.next()));
    told.put("children", children);
    return told;
  }

  private static Object value(Object internal) {
    if (internal == null) return null;
    if (internal instanceof byte[]) return java.util.Base64.getEncoder().encodeToString((byte[]) internal);
    return internal.toString();
  }
}
