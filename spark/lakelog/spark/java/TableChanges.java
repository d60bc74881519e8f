package lakelog;

import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What Spark asks a catalog to change, as JSON for Python: [{"kind": "AddColumn", "column": ["a", "b"], ...}, ...]. */
public class TableChanges {
  static String json(TableChange[] changes) {
    StringBuilder text = new StringBuilder("[");
    for (int i = 0; i < changes.length; i++) {
      if (i > 0) text.append(',');
      text.append(changes[i] instanceof OwnStatement.Change ? ((OwnStatement.Change) changes[i]).json : Door.json(told(changes[i])));
    }
    return text.append(']').toString();
  }

  private static java.util.Map told(TableChange change) {
    java.util.HashMap told = new java.util.HashMap();
    told.put("kind", change.getClass().getSimpleName());
    if (change instanceof TableChange.ColumnChange) told.put("column", ((TableChange.ColumnChange) change).fieldNames());
    if (change instanceof TableChange.SetProperty) {
      told.put("key", ((TableChange.SetProperty) change).property());
      told.put("value", ((TableChange.SetProperty) change).value());
    } else if (change instanceof TableChange.RemoveProperty) {
      told.put("key", ((TableChange.RemoveProperty) change).property());
    } else if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn add = (TableChange.AddColumn) change;
      told.put("schema", schema(add.fieldNames(), add.dataType(), add.isNullable()));
      told.put("comment", add.comment());
      told.put("position", position(add.position()));
      told.put("default", add.defaultValue() == null ? null : String.valueOf(add.defaultValue()));
    } else if (change instanceof TableChange.RenameColumn) {
      told.put("name", ((TableChange.RenameColumn) change).newName());
    } else if (change instanceof TableChange.UpdateColumnType) {
      TableChange.UpdateColumnType update = (TableChange.UpdateColumnType) change;
      told.put("schema", schema(update.fieldNames(), update.newDataType(), true));
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      told.put("nullable", Boolean.valueOf(((TableChange.UpdateColumnNullability) change).nullable()));
    } else if (change instanceof TableChange.UpdateColumnComment) {
      told.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition) {
      told.put("position", position(((TableChange.UpdateColumnPosition) change).position()));
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      told.put("default", ((TableChange.UpdateColumnDefaultValue) change).newDefaultValue());
    } else if (change instanceof TableChange.ClusterBy) {
      told.put("columns", names(((TableChange.ClusterBy) change).clusteringColumns()));
    }
    return told;
  }

  /** A struct of the one field, strings with a length as Spark keeps them: their declared type in the field's metadata. */
  private static String schema(String[] path, DataType type, boolean nullable) {
    StructType alone = new StructType().add(path[path.length - 1], type, nullable);
    return CharVarcharUtils.replaceCharVarcharWithStringInSchema(alone).json();
  }

  private static java.util.Map position(TableChange.ColumnPosition position) {
    if (position == null) return null;
    java.util.HashMap told = new java.util.HashMap();
    told.put("after", position instanceof TableChange.After ? ((TableChange.After) position).column() : null);
    return told;
  }

  private static Object names(NamedReference[] columns) {
    Object[] names = new Object[columns.length];
    for (int i = 0; i < columns.length; i++) names[i] = columns[i].fieldNames();
    return names;
  }
}
