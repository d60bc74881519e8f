package lakelog;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** The one way from the JVM to Python: a verb, two strings, one object; strings, bytes and Java objects come back. */
public class Door {
  /** The Python side, null while no session is enabled. Set once per JVM. */
  public static volatile scala.Function4 python;
  /** Made at enable; Python refuses every call that does not carry it. */
  public static volatile String secret = "";
  /** What a session that is not enabled is told. */
  public static volatile String closed = "lakelog is not enabled in this session";
  private static final ObjectMapper JSON = new ObjectMapper();

  public static Object ask(SparkSession session, String verb, String first, String second, Object third) {
    scala.Function4 answerer = python;
    if (answerer == null) throw new LakelogException("", closed);
    String header = secret + "\n" + verb + "\n" + (session == null ? "" : session.sessionUUID());
    Object answer = answerer.apply(header, first, second, third);
    if (answer instanceof String && ((String) answer).startsWith("\u0000")) {
      String[] told = ((String) answer).substring(1).split("\n", 2);
      throw new LakelogException(told[0], told[1]);
    }
    return answer;
  }

  public static String json(Object value) {
    try {
      return JSON.writeValueAsString(value);
    } catch (java.io.IOException e) {
      throw new IllegalArgumentException(e);
    }
  }

  public static String json(scala.collection.Map options) { return json(CollectionConverters.asJava(options)); }

  public static com.fasterxml.jackson.databind.JsonNode parse(String text) {
    try {
      return JSON.readTree(text);
    } catch (java.io.IOException e) {
      throw new IllegalArgumentException(e);
    }
  }

  public static scala.collection.immutable.Seq seq(java.util.List items) { return CollectionConverters.asScala(items).toSeq(); }

  public static scala.collection.immutable.Seq none() { return seq(new java.util.ArrayList()); }
}
