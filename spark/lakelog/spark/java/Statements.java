package lakelog;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumnSpec;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumns;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Statements as they were parsed. Those that lakelog does not serve yet are refused here by name: once resolved, Spark's own way would drop the
 * old table first, write to the metastore alone, or say what no user can understand.
 */
public class Statements extends Rule {
  private final SparkSession session;

  public Statements(SparkSession session) { this.session = session; }

  public TreeNode apply(TreeNode plan) {
    check((LogicalPlan) plan);
    return ((LogicalPlan) plan).resolveOperatorsUp(new Qualified());
  }

  /** delta.`path` with time travel: Spark takes names of two parts for files as soon as the time is resolved, so it gets three. */
  public static class Qualified extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof RelationTimeTravel) || !(((RelationTimeTravel) node).relation() instanceof UnresolvedRelation)) return false;
      Seq parts = ((UnresolvedRelation) ((RelationTimeTravel) node).relation()).multipartIdentifier();
      return parts.length() == 2 && Names.byPath(parts);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      RelationTimeTravel travel = (RelationTimeTravel) node;
      UnresolvedRelation relation = (UnresolvedRelation) travel.relation();
      java.util.ArrayList parts = new java.util.ArrayList();
      parts.add("spark_catalog");
      parts.addAll(CollectionConverters.asJava(relation.multipartIdentifier()));
      UnresolvedRelation qualified = relation.copy(Door.seq(parts), relation.options(), relation.isStreaming());
      qualified.copyTagsFrom(relation);
      return travel.copy(qualified, travel.timestamp(), travel.version());
    }
  }

  void check(LogicalPlan node) {
    if (node.analyzed()) return;
    if (node instanceof CreateTable) created("CREATE TABLE", ((CreateTable) node).name(), ((CreateTable) node).tableSpec().provider());
    if (node instanceof CreateTableAsSelect) {
      created("CREATE TABLE AS SELECT", ((CreateTableAsSelect) node).name(), ((CreateTableAsSelect) node).tableSpec().provider());
    }
    if (node instanceof ReplaceTable) created("REPLACE TABLE", ((ReplaceTable) node).name(), ((ReplaceTable) node).tableSpec().provider());
    if (node instanceof ReplaceTableAsSelect) {
      created("REPLACE TABLE AS SELECT", ((ReplaceTableAsSelect) node).name(), ((ReplaceTableAsSelect) node).tableSpec().provider());
    }
    if (node instanceof CreateTableLikeCommand) likeCreated((CreateTableLikeCommand) node);
    if (node.getClass().getSimpleName().equals("CreateTableLike")) likeCreated(node);
    if (node instanceof org.apache.spark.sql.execution.datasources.CreateTable) {
      org.apache.spark.sql.catalyst.catalog.CatalogTable made = ((org.apache.spark.sql.execution.datasources.CreateTable) node).tableDesc();
      if (made.provider().isDefined() && Names.isDelta(made.provider().get())) refuse("CREATE TABLE", made.identifier().nameParts());
    }
    if (node instanceof UnresolvedTable && !Names.isServed(((UnresolvedTable) node).commandName())) {
      named(((UnresolvedTable) node).commandName(), ((UnresolvedTable) node).multipartIdentifier());
    }
    if (node instanceof UnresolvedTable) altered((UnresolvedTable) node);
    if (node instanceof AlterColumns) tightened((AlterColumns) node);
    if (node instanceof UnresolvedTableOrView) {
      String command = ((UnresolvedTableOrView) node).commandName();
      if (!Names.isServed(command)) named(command, ((UnresolvedTableOrView) node).multipartIdentifier());
    }
    if (node.nodeName().equals("AddCheckConstraint")) constrained(node);
    if (node instanceof DescribeColumn) described((DescribeColumn) node);
    if (node instanceof UpdateTable) target("UPDATE", ((UpdateTable) node).table());
    if (node instanceof MergeIntoTable) target("MERGE", ((MergeIntoTable) node).targetTable());
    if (node instanceof OverwritePartitionsDynamic) target("a dynamic partition overwrite", (LogicalPlan) ((OverwritePartitionsDynamic) node).productElement(0));
    if (node instanceof UnresolvedRelation) read((UnresolvedRelation) node);
    java.util.Iterator children = CollectionConverters.asJava(node.children()).iterator();
    while (children.hasNext()) check((LogicalPlan) children.next());
  }

  /** ALTER TABLE delta.`path@v1`, which would be resolved against the columns of the old version. */
  private void altered(UnresolvedTable node) {
    Seq parts = node.multipartIdentifier();
    String name = parts.last().toString();
    boolean asked = node.commandName().startsWith("ALTER TABLE") && Names.byPath(parts) && name.indexOf('@') >= 0;
    if (asked) Door.ask(session, "newest", name, "ALTER TABLE", null);
  }

  private void created(String statement, LogicalPlan name, scala.Option provider) {
    // IDENTIFIER('t') has no name yet; StatementCheck comes when it has
    if (!(name instanceof UnresolvedIdentifier || name instanceof ResolvedIdentifier)) return;
    Object format = provider.isDefined() ? provider.get() : session.sessionState().conf().defaultDataSourceName();
    Seq parts = parts(name);
    if (Names.isDelta(format) || Names.byPath(parts)) refuse(statement, parts);
  }

  private void likeCreated(CreateTableLikeCommand node) {
    boolean named = node.provider().isDefined() ? Names.isDelta(node.provider().get()) : isOurs(node.sourceTable().nameParts());
    if (named || Names.byPath(node.targetTable().nameParts())) refuse("CREATE TABLE LIKE", node.targetTable().nameParts());
  }

  /** CreateTableLike, a node that Spark 4.0 and 4.1 do not have; its source is checked as a child. */
  private void likeCreated(LogicalPlan node) {
    try {
      scala.Option provider = (scala.Option) node.getClass().getMethod("provider", new Class[0]).invoke(node, new Object[0]);
      Seq name = parts((LogicalPlan) node.children().apply(0));
      if ((provider.isDefined() && Names.isDelta(provider.get())) || Names.byPath(name)) refuse("CREATE TABLE LIKE", name);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** DESCRIBE HISTORY t, which Spark parses as column t of a table HISTORY. */
  private void described(DescribeColumn node) {
    if (!(node.relation() instanceof UnresolvedTableOrView)) return;
    Seq parts = ((UnresolvedTableOrView) node.relation()).multipartIdentifier();
    String word = parts.length() == 1 ? parts.apply(0).toString().toUpperCase(java.util.Locale.ROOT) : "";
    boolean meant = (word.equals("HISTORY") || word.equals("DETAIL")) && !catalog().tableExists(identifier(parts)) && !catalog().isTempView(parts);
    if (meant) Door.ask(session, "refuse", "DESCRIBE " + word, node.column().sql(), null);
  }

  /** SET NOT NULL among changes of other columns. Alone it is an OwnStatement; Spark's analyzer would refuse it without a remedy. */
  private void tightened(AlterColumns node) {
    if (!(node.table() instanceof UnresolvedTable)) return;
    java.util.Iterator specs = CollectionConverters.asJava(node.specs()).iterator();
    while (specs.hasNext()) {
      scala.Option nullable = ((AlterColumnSpec) specs.next()).newNullability();
      boolean tightens = nullable.isDefined() && !((Boolean) nullable.get()).booleanValue();
      if (tightens) named("SET NOT NULL for one of several columns", ((UnresolvedTable) node.table()).multipartIdentifier());
    }
  }

  /** ADD CONSTRAINT, which Spark turns into a query for rows that violate it. */
  private void constrained(LogicalPlan node) {
    if (node instanceof UnresolvedRelation) named("ALTER TABLE ... ADD CONSTRAINT", ((UnresolvedRelation) node).multipartIdentifier());
    java.util.Iterator children = CollectionConverters.asJava(node.children()).iterator();
    while (children.hasNext()) constrained((LogicalPlan) children.next());
  }

  private void target(String statement, LogicalPlan table) {
    while (table instanceof SubqueryAlias) table = ((SubqueryAlias) table).child();
    if (table instanceof UnresolvedRelation) named(statement, ((UnresolvedRelation) table).multipartIdentifier());
  }

  private void read(UnresolvedRelation relation) {
    Seq parts = relation.multipartIdentifier();
    if (relation.isStreaming()) named("reading a stream", parts);
    boolean relative = parts.length() == 2 && Names.isDelta(parts.apply(0)) && !Names.byPath(parts);
    if (relative && !catalog().databaseExists(parts.apply(0).toString())) refuse("a relative path in SQL", parts);
  }

  private void named(String statement, Seq parts) {
    if (isOurs(parts)) refuse(statement, parts);
  }

  private void refuse(String statement, Seq parts) { Door.ask(session, "refuse", statement, Names.quoted(parts), null); }

  private static Seq parts(LogicalPlan name) {
    if (name instanceof UnresolvedIdentifier) return ((UnresolvedIdentifier) name).nameParts();
    java.util.ArrayList parts = new java.util.ArrayList();
    if (name instanceof ResolvedIdentifier) {
      parts.addAll(java.util.Arrays.asList(((ResolvedIdentifier) name).identifier().namespace()));
      parts.add(((ResolvedIdentifier) name).identifier().name());
    }
    return Door.seq(parts);
  }

  private SessionCatalog catalog() { return session.sessionState().catalog(); }

  private static TableIdentifier identifier(Seq parts) {
    String name = parts.last().toString();
    return new TableIdentifier(name, parts.length() > 1 ? scala.Option.apply(parts.apply(parts.length() - 2)) : scala.Option.empty());
  }

  /** Whether the name means a Delta table: by path, or one that the session catalog's metastore knows as such. */
  boolean isOurs(Seq parts) {
    if (Names.byPath(parts)) return true;
    boolean here = parts.length() == 3 ? parts.apply(0).toString().equalsIgnoreCase("spark_catalog")
        : parts.length() < 3 && session.sessionState().catalogManager().currentCatalog().name().equals("spark_catalog");
    if (!here || (parts.length() == 1 && catalog().isTempView(parts))) return false;
    TableIdentifier table = identifier(parts);
    try {
      scala.Option provider = catalog().getTableMetadata(table).provider();
      return provider.isDefined() && Names.isDelta(provider.get());
    } catch (NoSuchNamespaceException e) {
      return false;
    } catch (NoSuchTableException e) {
      return false;
    }
  }
}
