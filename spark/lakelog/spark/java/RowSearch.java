package lakelog;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime$;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark must do for a row-level command: evaluate a resolved condition over partition values, over files, or against them. */
public class RowSearch {
  private static final String ROW = "__lakelog_row";
  final DeltaLogFileIndex index;
  private final LogicalRelation relation;
  private final Expression asked;
  private final Expression condition;

  public RowSearch(LogicalRelation relation, Expression condition) {
    this.relation = relation;
    this.asked = condition;
    this.index = DeltaRelation.indexOf(relation);
    this.condition = (Expression) simplified().transform(new AsTheTableSpells(relation));
  }

  /** One reading of the clock for all phases, and what Spark's optimizer makes of the condition where that is a condition over the relation still. */
  private Expression simplified() {
    LogicalPlan plan = ComputeCurrentTime$.MODULE$.apply(new Filter(asked, relation));
    Expression once = ((Filter) plan).condition();
    if (SubqueryExpression.hasSubquery(once) || !once.deterministic()) return once;
    LogicalPlan optimized = Dataset.ofRows(index.session, plan).queryExecution().optimizedPlan();
    if (!(optimized instanceof Filter) || !(((Filter) optimized).child() instanceof LogicalRelation)) return once;
    Expression simple = ((Filter) optimized).condition();
    return simple.references().subsetOf(relation.outputSet()) ? simple : once;
  }

  /** The search of `table.where(condition)`, whose analysed plan is a Filter over one of our relations, or the relation itself. */
  public static RowSearch of(Dataset filtered) {
    LogicalPlan plan = filtered.queryExecution().analyzed();
    Expression condition = Literal.TrueLiteral();
    if (plan instanceof Filter) {
      condition = ((Filter) plan).condition();
      plan = ((Filter) plan).child();
    }
    LogicalPlan table = RowCommands.unaliased(plan);
    return DeltaRelation.indexOf(table) == null ? null : new RowSearch((LogicalRelation) table, RowCommands.unaliased(plan, condition));
  }

  /** {"condition": as ExpressionText tells it, or null, "sql", "deterministic", "subquery", "columns": top-level columns it refers to, "version"}. */
  public String describe() {
    boolean subquery = SubqueryExpression.hasSubquery(condition);
    java.util.LinkedHashMap told = new java.util.LinkedHashMap();
    told.put("condition", subquery ? null : ExpressionText.node(condition));
    told.put("sql", ((Expression) asked.transform(new Unqualified())).sql());
    told.put("deterministic", Boolean.valueOf(condition.deterministic()));
    told.put("subquery", Boolean.valueOf(subquery));
    java.util.ArrayList columns = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(relation.output()).iterator();
    while (all.hasNext()) {
      Attribute attribute = (Attribute) all.next();
      if (condition.references().contains(attribute)) columns.add(attribute.name());
    }
    told.put("columns", columns);
    told.put("version", index.version);
    return Door.json(told);
  }

  /** An attribute keeps the letters that the query gave it; files and statistics know the table's. */
  public static class AsTheTableSpells extends scala.runtime.AbstractPartialFunction {
    private final java.util.HashMap columns = new java.util.HashMap();

    public AsTheTableSpells(LogicalRelation relation) {
      java.util.Iterator all = CollectionConverters.asJava(relation.output()).iterator();
      while (all.hasNext()) {
        Attribute column = (Attribute) all.next();
        columns.put(column.exprId(), column);
      }
    }

    public boolean isDefinedAt(Object node) { return node instanceof AttributeReference && columns.containsKey(((Attribute) node).exprId()); }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      return isDefinedAt(node) ? columns.get(((Attribute) node).exprId()) : otherwise.apply(node);
    }
  }

  /** Columns as the user writes them, without the table's name. */
  public static class Unqualified extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) { return node instanceof AttributeReference; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      return isDefinedAt(node) ? ((AttributeReference) node).withQualifier(Door.none()) : otherwise.apply(node);
    }
  }

  /** A byte per file of the snapshot: 1 where the condition, over partition columns alone, is true. Spark evaluates it. */
  public byte[] partitionMatches(String snapshot) {
    FileList files = index.at(snapshot, false, null).files();
    InternalRow[] tuples = files.tuples();
    StructType schema = index.partitions;
    java.util.ArrayList output = new java.util.ArrayList();
    for (int c = 0; c < schema.length(); c++) output.add(attribute(schema.apply(c).name()));
    Attribute number = (Attribute) org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttribute(
        new StructType().add(DeltaLogFileIndex.FILE_NUMBER, DataTypes.LongType, false).apply(0));
    output.add(number);
    java.util.ArrayList rows = new java.util.ArrayList();
    for (int i = 0; i < tuples.length; i++) {
      Object[] values = new Object[schema.length() + 1];
      for (int c = 0; c < schema.length(); c++) values[c] = tuples[i].get(c, schema.apply(c).dataType());
      values[schema.length()] = new Long(i);
      rows.add(new GenericInternalRow(values));
    }
    LogicalPlan local = new LocalRelation(Door.seq(output), Door.seq(rows), false, scala.Option.empty());
    Row[] hits = (Row[]) Dataset.ofRows(index.session, where(condition, local, snapshot)).select(DeltaLogFileIndex.FILE_NUMBER, new String[0]).collect();
    boolean[] marked = new boolean[tuples.length];
    for (int i = 0; i < hits.length; i++) marked[(int) hits[i].getLong(0)] = true;
    return files.filesOf(marked);
  }

  private Attribute attribute(String name) {
    java.util.Iterator all = CollectionConverters.asJava(relation.output()).iterator();
    while (all.hasNext()) {
      Attribute attribute = (Attribute) all.next();
      if (attribute.name().equals(name)) return attribute;
    }
    throw new IllegalStateException(name);
  }

  /** A filter whose subqueries read the same version of the table as the statement itself. */
  private LogicalPlan where(Expression filter, LogicalPlan child, String snapshot) {
    return (LogicalPlan) ((QueryPlan) new Filter(filter, child)).transformWithSubqueries(new PinRule.ToPinned(index.root, snapshot));
  }

  private LogicalRelation scan(String snapshot, boolean numbered, byte[] subset) {
    DeltaLogFileIndex files = index.at(snapshot, numbered, subset);
    java.util.ArrayList output = new java.util.ArrayList(CollectionConverters.asJava(relation.output()));
    if (numbered) {
      output.add(org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttribute(files.partitionSchema().apply(DeltaLogFileIndex.FILE_NUMBER)));
    }
    return DeltaRelation.over(relation, files, Door.seq(output));
  }

  /** "file number TAB matching rows NEWLINE" for each file of the subset that holds a match. */
  public String matches(String snapshot, byte[] subset, String description) {
    Dataset found = Dataset.ofRows(index.session, where(condition, scan(snapshot, true, subset), snapshot));
    return counted(found, description);
  }

  private String counted(Dataset found, String description) {
    LocalProperties described = LocalProperties.described(index.session, description);
    try {
      Row[] rows = (Row[]) found.groupBy(DeltaLogFileIndex.FILE_NUMBER, new String[0]).count().collect();
      StringBuilder lines = new StringBuilder();
      for (int i = 0; i < rows.length; i++) lines.append(rows[i].getLong(0)).append('\t').append(rows[i].getLong(1)).append('\n');
      return lines.toString();
    } finally {
      described.end();
    }
  }

  /** The rows of the subset for which the condition is false or null. */
  public Dataset survivors(String snapshot, byte[] subset) {
    Expression keep = new Not(new EqualNullSafe(condition, Literal.TrueLiteral()));
    return Dataset.ofRows(index.session, where(keep, scan(snapshot, false, subset), snapshot));
  }

  /** Matching positions, evaluated once and kept: for conditions that need not answer the same twice, or hold subqueries. */
  public Dataset positions(String snapshot, byte[] subset, String description) {
    LocalProperties described = LocalProperties.described(index.session, description);
    try {
      Dataset found = Dataset.ofRows(index.session, where(condition, scan(snapshot, true, subset), snapshot));
      return (Dataset) found.selectExpr(new String[] {DeltaLogFileIndex.FILE_NUMBER, "_metadata.row_index AS " + ROW}).localCheckpoint(true);
    } finally {
      described.end();
    }
  }

  public String matchesOf(Dataset positions, String description) { return counted(positions, description); }

  /** The rows of the subset for which the condition is true. */
  public Dataset matched(String snapshot, byte[] subset) {
    return Dataset.ofRows(index.session, where(condition, scan(snapshot, false, subset), snapshot));
  }

  /** The rows of the subset at none of the positions. */
  public Dataset survivorsOf(Dataset positions, String snapshot, byte[] subset) { return against(positions, snapshot, subset, "left_anti"); }

  /** The rows of the subset at one of the positions. */
  public Dataset matchedOf(Dataset positions, String snapshot, byte[] subset) { return against(positions, snapshot, subset, "left_semi"); }

  private Dataset against(Dataset positions, String snapshot, byte[] subset, String how) {
    java.util.ArrayList names = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(relation.output()).iterator();
    while (all.hasNext()) names.add("`" + ((Attribute) all.next()).name().replace("`", "``") + "`");
    java.util.ArrayList wide = new java.util.ArrayList(names);
    wide.add(DeltaLogFileIndex.FILE_NUMBER);
    wide.add("_metadata.row_index AS " + ROW);
    Dataset rows = (Dataset) Dataset.ofRows(index.session, scan(snapshot, true, subset)).selectExpr((String[]) wide.toArray(new String[0]));
    Dataset found = (Dataset) rows.join(positions, new String[] {DeltaLogFileIndex.FILE_NUMBER, ROW}, how);
    return (Dataset) found.selectExpr((String[]) names.toArray(new String[0]));
  }
}
