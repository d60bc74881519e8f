package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UnresolvedNamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
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
  static Dataset analysed(SparkSession session, LogicalPlan plan) {
    SQLConf conf = session.sessionState().conf();
    if (!conf.caseSensitiveAnalysis()) return Dataset.ofRows(session, plan);
    SQLConf own = conf.clone();
    own.setConfString(SQLConf.CASE_SENSITIVE().key(), "false");
    return (Dataset) SQLConf.withExistingConf(own, new StoredExpressions(session, plan));
  }

  static Expression parsed(SparkSession session, String sql) throws Exception {
    return session.sessionState().sqlParser().parseExpression(sql);
  }

  /** For each of the texts, a JSON array, [[part of a name, ...], ...]: the columns that it speaks of, as it spells them, each once. */
  public static String references(SparkSession session, String texts) throws Exception {
    java.util.ArrayList told = new java.util.ArrayList();
    java.util.Iterator each = Door.parse(texts).iterator();
    while (each.hasNext()) {
      java.util.LinkedHashSet found = new java.util.LinkedHashSet();
      gather(parsed(session, ((JsonNode) each.next()).asText()), new java.util.HashSet(), found);
      told.add(found);
    }
    return Door.json(told);
  }

  /** In the body of a lambda function Spark's parser takes every name for a parameter; those that are none are columns. */
  private static void gather(Expression node, java.util.Set parameters, java.util.LinkedHashSet found) {
    Seq name = null;
    if (node instanceof UnresolvedAttribute) name = ((UnresolvedAttribute) node).nameParts();
    if (node instanceof UnresolvedNamedLambdaVariable) name = ((UnresolvedNamedLambdaVariable) node).nameParts();
    if (name != null && !parameters.contains(name.apply(0).toString().toLowerCase(java.util.Locale.ROOT))) {
      found.add(new java.util.ArrayList(CollectionConverters.asJava(name)));
    }
    java.util.Set inner = parameters;
    if (node instanceof LambdaFunction) {
      inner = new java.util.HashSet(parameters);
      java.util.Iterator arguments = CollectionConverters.asJava(((LambdaFunction) node).arguments()).iterator();
      while (arguments.hasNext()) inner.add(((NamedExpression) arguments.next()).name().toLowerCase(java.util.Locale.ROOT));
    }
    java.util.Iterator each = CollectionConverters.asJava(node.children()).iterator();
    while (each.hasNext()) gather((Expression) each.next(), inner, found);
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
    searchFunctions(parsed, told);
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

  /** The analyzer puts the body of a function written in SQL in its place, so that its name is left in the text alone. */
  private static void searchFunctions(Expression node, java.util.LinkedHashMap told) {
    if (node instanceof UnresolvedFunction) {
      Seq parts = ((UnresolvedFunction) node).nameParts();
      FunctionIdentifier name = new FunctionIdentifier(parts.last().toString());
      boolean own = parts.length() == 1 || parts.apply(parts.length() - 2).toString().equalsIgnoreCase("builtin");
      if (!own || !FunctionRegistry$.MODULE$.builtin().functionExists(name)) told.put("function", parts.mkString("."));
    }
    java.util.Iterator each = CollectionConverters.asJava(node.children()).iterator();
    while (each.hasNext()) searchFunctions((Expression) each.next(), told);
  }

  private static void note(java.util.LinkedHashMap told, String kind, Expression node) {
    if (!told.containsKey(kind)) told.put(kind, node.sql());
  }

  /**
   * A frame computed in stages, each from the one before: {"name", "source", "text"} a column, its value an expression, or without a text the column
   * of that source. A stage is one projection; the optimizer merges what it may.
   */
  public static Dataset select(Dataset frame, String told) throws Exception {
    SparkSession session = (SparkSession) frame.sparkSession();
    LogicalPlan plan = frame.queryExecution().analyzed();
    java.util.Iterator stages = Door.parse(told).iterator();
    while (stages.hasNext()) {
      java.util.ArrayList columns = new java.util.ArrayList();
      java.util.Iterator each = ((JsonNode) stages.next()).iterator();
      while (each.hasNext()) {
        JsonNode column = (JsonNode) each.next();
        columns.add(column(session, column.get("name").asText(), column.get("source"), column.get("text")));
      }
      plan = new Project(Door.seq(columns), row(plan));
    }
    return analysed(session, plan);
  }

  /** One name for whatever the columns are qualified with: `a`.`b` is the field b of the column a then, never the column b of a table a. */
  private static LogicalPlan row(LogicalPlan plan) { return new SubqueryAlias(new AliasIdentifier("lakelog_row"), plan); }

  private static Expression column(SparkSession session, String name, JsonNode source, JsonNode text) throws Exception {
    if (text.isNull() && source.asText().equals(name)) {
      java.util.ArrayList parts = new java.util.ArrayList();
      parts.add(name);
      return new UnresolvedAttribute(Door.seq(parts));
    }
    String sql = text.isNull() ? quoted(source.asText()) : "(\n" + text.asText() + "\n)";
    return (Expression) parsed(session, sql + " AS " + quoted(name)).transform(new NumberOfTasks());
  }

  private static String quoted(String name) { return "`" + name.replace("`", "``") + "`"; }

  /** Puts Spark's own classes, which executors have, where the text says TASKS. */
  public static class NumberOfTasks extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof UnresolvedFunction && ((UnresolvedFunction) node).nameParts().mkString(".").equals(TASKS);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      Class context = org.apache.spark.TaskContext.class;
      // Not deterministic, or the optimizer would evaluate it on the driver. Rows that the plan itself holds it evaluates there all the same,
      // where there is no task and they are one.
      Expression task = new StaticInvoke(context, new ObjectType(context), "get", Door.none(), Door.none(), false, false, false, scala.Option.empty());
      java.util.ArrayList number = new java.util.ArrayList();
      number.add(new Invoke(task, "numPartitions", DataTypes.IntegerType, Door.none(), Door.none(), true, true, false));
      number.add(new Literal(new Integer(1), DataTypes.IntegerType));
      return new Coalesce(Door.seq(number));
    }
  }
}
