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

  /** What this thread is changing; Python answers in threads of its own and could not tell. */
  private static final ThreadLocal ACTIVE = new ThreadLocal();

  /** The sessions that have asked, so that Python can find the one behind an id. */
  private static final java.util.Map SESSIONS = java.util.Collections.synchronizedMap(new java.util.HashMap());

  public static Object ask(SparkSession session, String verb, String first, String second, Object third) {
    scala.Function4 answerer = python;
    check();
    if (session != null && !SESSIONS.containsKey(session.sessionUUID())) SESSIONS.put(session.sessionUUID(), new java.lang.ref.WeakReference(session));
    boolean changes = verb.equals("write") || verb.equals("insert") || verb.equals("delete") || verb.equals("alter");
    Object before = ACTIVE.get();
    String header = secret + "\n" + verb + "\n" + (session == null ? "" : session.sessionUUID()) + "\n" + (changes && before != null ? before : "");
    Object answer;
    if (changes) ACTIVE.set(verb);
    try {
      answer = answerer.apply(header, first, second, third);
    } finally {
      ACTIVE.set(before);
    }
    if (answer instanceof String && ((String) answer).startsWith("\u0000")) {
      String[] told = ((String) answer).substring(1).split("\n", 2);
      throw new LakelogException(told[0], told[1]);
    }
    return answer;
  }

  /** Every use of the format fails with one message while no session is enabled. */
  static void check() {
    if (python == null) throw new LakelogException("", closed);
  }

  /** The session that asked under this id, or null when it is gone. */
  public static SparkSession session(String id) {
    java.lang.ref.WeakReference found = (java.lang.ref.WeakReference) SESSIONS.get(id);
    return found == null ? null : (SparkSession) found.get();
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
