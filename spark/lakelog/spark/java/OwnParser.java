package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Spark's parser, but that Python is asked first about statements that begin with one of a few words. What Python knows and concerns a
 * Delta table becomes an OwnStatement; all else is parsed as ever. (A java.lang.reflect.Proxy would wrap what the parser throws.)
 */
public class OwnParser implements ParserInterface {
  private static final java.util.Set WORDS = java.util.Collections.singleton("ALTER");
  private final SparkSession session;
  private final ParserInterface spark;

  public OwnParser(SparkSession session, ParserInterface spark) {
    this.session = session;
    this.spark = spark;
  }

  private LogicalPlan own(String text) {
    if (Door.python == null || !WORDS.contains(firstWord(text))) return null;
    String sql = new VariableSubstitution().substitute(text);
    Object answer = Door.ask(session, "parse", sql, tokens(sql), null);
    if (answer == null) return null;
    JsonNode told = Door.parse((String) answer);
    java.util.ArrayList names = new java.util.ArrayList();
    java.util.Iterator each = told.get("table").elements();
    while (each.hasNext()) names.add(((JsonNode) each.next()).asText());
    Seq parts = Door.seq(names);
    if (!new Statements(session).isOurs(parts)) return null;
    return new OwnStatement(new UnresolvedTable(parts, told.get("command").asText(), false), told.get("change").toString());
  }

  /** In capitals, behind spaces and comments. */
  public static String firstWord(String text) {
    int at = 0;
    int n = text.length();
    while (at < n) {
      if (Character.isWhitespace(text.charAt(at))) at++;
      else if (text.startsWith("--", at)) while (at < n && text.charAt(at) != '\n') at++;
      else if (text.startsWith("/*", at) && text.indexOf("*/", at + 2) > 0) at = text.indexOf("*/", at + 2) + 2;
      else break;
    }
    int end = at;
    while (end < n && Character.isLetter(text.charAt(end))) end++;
    return text.substring(at, end).toUpperCase(java.util.Locale.ROOT);
  }

  /** [[kind, text, start, stop], ...] without what no parser sees. */
  public static String tokens(String text) {
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    java.util.ArrayList rows = new java.util.ArrayList();
    java.util.Iterator each = lexer.getAllTokens().iterator();
    while (each.hasNext()) {
      Token token = (Token) each.next();
      if (token.getChannel() != Token.DEFAULT_CHANNEL) continue;
      rows.add(new Object[] {lexer.getVocabulary().getSymbolicName(token.getType()), token.getText(),
          new Integer(token.getStartIndex()), new Integer(token.getStopIndex())});
    }
    return Door.json(rows);
  }

  public LogicalPlan parsePlan(String text) throws ParseException {
    LogicalPlan own = own(text);
    return own == null ? spark.parsePlan(text) : own;
  }

  public Expression parseExpression(String text) throws ParseException { return spark.parseExpression(text); }

  public TableIdentifier parseTableIdentifier(String text) throws ParseException { return spark.parseTableIdentifier(text); }

  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException { return spark.parseFunctionIdentifier(text); }

  public Seq parseMultipartIdentifier(String text) throws ParseException { return spark.parseMultipartIdentifier(text); }

  public LogicalPlan parseQuery(String text) throws ParseException { return spark.parseQuery(text); }

  public StructType parseRoutineParam(String text) throws ParseException { return spark.parseRoutineParam(text); }

  public StructType parseTableSchema(String text) throws ParseException { return spark.parseTableSchema(text); }

  public DataType parseDataType(String text) throws ParseException { return spark.parseDataType(text); }

  // the rest of ParserInterface
}
