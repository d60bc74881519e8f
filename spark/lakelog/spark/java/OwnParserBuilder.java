package lakelog;

import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.classic.SparkSession;

/** Puts our parser before that of each session that Spark builds from the extensions. */
public class OwnParserBuilder extends scala.runtime.AbstractFunction2 {
  public Object apply(Object session, Object parser) { return new OwnParser((SparkSession) session, (ParserInterface) parser); }
}
