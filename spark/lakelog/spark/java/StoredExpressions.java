package lakelog;

import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** SQL expressions that a table keeps: what they are made of, and frames computed by them. Column names match in any case, whatever the session says. */
public class StoredExpressions extends scala.runtime.AbstractFunction0 {
  /** In the texts of `select`: the number of tasks of the stage that evaluates it. */
  private static final String TASKS = "lakelog_number_of_tasks";

  /** Stand for what answers otherwise for each query, or each user, though not for each row. */
  private static final java.util.List MOMENTARY = java.util.Arrays.asList(new String[] {"CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp",
      "CurrentTime", "CurrentUser", "SessionUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone"});

  private final SparkSession session;
  private final LogicalPlan plan;

  private StoredExpressions(SparkSession session, LogicalPlan plan) {
    this.session = session;
    this.plan = plan;
  }

  public Object apply() { return Dataset.ofRows(session, plan); }

  /** The plan analysed with names in any case, by this thread alone. */
  private static Dataset analysed(SparkSession session, LogicalPlan plan) {
    SQLConf conf = session.sessionState().conf();
    if (!conf.caseSensitiveAnalysis()) return Dataset.ofRows(session, plan);
    SQLConf own = conf.clone();
    own.setConfString(SQLConf.CASE_SENSITIVE().key(), "false");
    return (Dataset) SQLConf.withExistingConf(own, new StoredExpressions(session, plan));
  }

  private static Expression parsed(SparkSession session, String sql) throws Exception {
    return session.sessionState().sqlParser().parseExpression(sql);
  }

  /** [[part of a name, ...], ...]: the columns that the text speaks of, as it spells them, each once. */
  public static String references(SparkSession session, String sql) throws Exception {
    java.util.LinkedHashSet found = new java.util.LinkedHashSet();
    gather(parsed(session, sql), found);
    return Door.json(found);
  }

  private static void gather(Expression node, java.util.LinkedHashSet found) {
    if (node instanceof UnresolvedAttribute) {
      found.add(new java.util.ArrayList(CollectionConverters.asJava(((UnresolvedAttribute) node).nameParts())));
    }
    java.util.Iterator each = CollectionConverters.asJava(node.children()).iterator();
    while (each.hasNext()) gather((Expression) each.next(), found);
  }

  /** {"type": as a schema string spells it, "columns": top-level columns referred to, and for each kind of part that was met, its text}. */
  public static String describe(SparkSession session, String sql, String schema) throws Exception {
    java.util.LinkedHashMap told = new java.util.LinkedHashMap();
    Expression parsed = parsed(session, sql);
    if (SubqueryExpression.hasSubquery(parsed)) {
      told.put("subquery", sql);
      return Door.json(told);
    }
    LocalRelation relation = new LocalRelation(DataTypeUtils.toAttributes((StructType) DataType.fromJson(schema)), Door.none(), false, scala.Option.empty());
    java.util.ArrayList one = new java.util.ArrayList();
    one.add(new UnresolvedAlias(parsed, scala.Option.empty()));
    LogicalPlan plan = analysed(session, new Project(Door.seq(one), relation)).queryExecution().analyzed();
    java.util.LinkedHashSet columns = new java.util.LinkedHashSet();
    search(plan, told, columns);
    Seq output = plan.output();
    boolean plain = plan instanceof Project && ((Project) plan).child() instanceof LocalRelation && output.length() == 1;
    if (!plain && told.isEmpty()) told.put("shape", sql);
    if (output.length() == 1) told.put("type", new com.fasterxml.jackson.databind.util.RawValue(((Attribute) output.apply(0)).dataType().json()));
    told.put("columns", columns);
    return Door.json(told);
  }

  private static void search(LogicalPlan plan, java.util.LinkedHashMap told, java.util.LinkedHashSet columns) {
    java.util.Iterator expressions = CollectionConverters.asJava(plan.expressions()).iterator();
    while (!(plan instanceof LocalRelation) && expressions.hasNext()) search((Expression) expressions.next(), told, columns);
    java.util.Iterator children = CollectionConverters.asJava(plan.children()).iterator();
    while (children.hasNext()) search((LogicalPlan) children.next(), told, columns);
  }

  /** Innermost first, so that what is named is the part itself. */
  private static void search(Expression node, java.util.LinkedHashMap told, java.util.LinkedHashSet columns) {
    java.util.Iterator each = CollectionConverters.asJava(node.children()).iterator();
    while (each.hasNext()) search((Expression) each.next(), told, columns);
    if (node instanceof Attribute) columns.add(((Attribute) node).name());
    String name = node.getClass().getSimpleName();
    if (node instanceof AggregateExpression) note(told, "aggregate", node);
    else if (node instanceof WindowExpression) note(told, "window", node);
    else if (node instanceof Generator) note(told, "generator", node);
    else if (node instanceof UserDefinedExpression || name.equals("ApplyFunctionExpression")) note(told, "function", node);
    else if (name.equals("VariableReference")) note(told, "variable", node);
    else if (MOMENTARY.contains(name)) note(told, "momentary", node);
    else if (!(node instanceof Alias) && !node.deterministic()) note(told, "nondeterministic", node);
  }

  private static void note(java.util.LinkedHashMap told, String kind, Expression node) {
    if (!told.containsKey(kind)) told.put(kind, node.sql());
  }

  /** A frame of the texts, each an expression with its alias, over the frame's columns. */
  public static Dataset select(Dataset frame, java.util.List texts) throws Exception {
    SparkSession session = (SparkSession) frame.sparkSession();
    java.util.ArrayList columns = new java.util.ArrayList();
    for (int i = 0; i < texts.size(); i++) {
      Expression column = parsed(session, (String) texts.get(i));
      columns.add(column.transform(new NumberOfTasks()));
    }
    return analysed(session, new Project(Door.seq(columns), frame.queryExecution().analyzed()));
  }

  /** Puts Spark's own classes, which executors have, where the text says TASKS. */
  public static class NumberOfTasks extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof UnresolvedFunction && ((UnresolvedFunction) node).nameParts().mkString(".").equals(TASKS);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      Class context = org.apache.spark.TaskContext.class;
      // Not deterministic: the optimizer would evaluate it on the driver otherwise, which has no task.
      Expression task = new StaticInvoke(context, new ObjectType(context), "get", Door.none(), Door.none(), false, false, false, scala.Option.empty());
      return new Invoke(task, "numPartitions", DataTypes.IntegerType, Door.none(), Door.none(), false, false, false);
    }
  }
}
