package lakelog;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** What users have set, of a session's conf and of Hadoop's, in one trip. */
public class Settings {
  private static final String GIVEN = "Set by Spark from keys starting with 'spark.hadoop'";
  private static final String FILLED = "lakelog";

  /** Entries as JSON: of the session's conf, {"session": ...}, and of Hadoop's, {"hadoop": ...}, those whose names begin so or hold such a word. */
  public static String of(SparkSession session, java.util.List prefixes, java.util.List words, String hadoopPrefix) {
    java.util.TreeMap ours = new java.util.TreeMap();
    java.util.Iterator all = CollectionConverters.asJava(session.sessionState().conf().getAllConfs()).entrySet().iterator();
    while (all.hasNext()) {
      java.util.Map.Entry entry = (java.util.Map.Entry) all.next();
      if (wanted(entry.getKey().toString(), prefixes, words)) ours.put(entry.getKey(), entry.getValue());
    }
    java.util.HashMap told = new java.util.HashMap();
    told.put("session", ours);
    told.put("hadoop", hadoop(session.sparkContext().hadoopConfiguration(), hadoopPrefix));
    return Door.json(told);
  }

  private static boolean wanted(String key, java.util.List prefixes, java.util.List words) {
    String lower = key.toLowerCase(java.util.Locale.ROOT);
    for (int i = 0; i < prefixes.size(); i++) if (lower.startsWith(prefixes.get(i).toString())) return true;
    for (int i = 0; i < words.size(); i++) if (lower.contains(words.get(i).toString())) return true;
    return false;
  }

  /** Neither Hadoop's defaults, nor what Spark puts in unasked (its own defaults, keys of the environment that it started in), nor what we did. */
  private static java.util.Map hadoop(Configuration conf, String prefix) {
    java.util.TreeMap found = new java.util.TreeMap();
    java.util.Iterator names = conf.getPropsWithPrefix(prefix).keySet().iterator();
    while (names.hasNext()) {
      String name = prefix + names.next();
      String[] sources = conf.getPropertySources(name);
      String source = sources == null || sources.length == 0 ? "" : sources[sources.length - 1];
      boolean unasked = source.endsWith("-default.xml") || source.equals(FILLED) || (source.startsWith("Set by Spark") && !source.equals(GIVEN));
      String value = conf.get(name);
      if (!unasked && value != null) found.put(name, value);
    }
    return found;
  }

  /** Entries of Hadoop's conf for all sessions of this application. Unlike a session's conf it takes no part in what Spark logs of a query. */
  public static void fill(SparkSession session, java.util.Map entries) {
    Configuration conf = session.sparkContext().hadoopConfiguration();
    java.util.Iterator all = entries.entrySet().iterator();
    while (all.hasNext()) {
      java.util.Map.Entry entry = (java.util.Map.Entry) all.next();
      conf.set(entry.getKey().toString(), entry.getValue().toString(), FILLED);
    }
  }
}
