package lakelog;

import org.apache.spark.sql.classic.SparkSession;

/** Properties that the jobs of this thread take with them, until the end: what Spark's UI calls them, and conf entries for their tasks. */
public class LocalProperties {
  private final SparkSession session;
  private final String[] keys;
  private final String[] before;

  private LocalProperties(SparkSession session, String[] keys, String[] values) {
    this.session = session;
    this.keys = keys;
    this.before = new String[keys.length];
    for (int i = 0; i < keys.length; i++) {
      before[i] = session.sparkContext().getLocalProperty(keys[i]);
      session.sparkContext().setLocalProperty(keys[i], values[i]);
    }
  }

  static LocalProperties described(SparkSession session, String description) {
    return new LocalProperties(session, new String[] {"spark.job.description"}, new String[] {description});
  }

  /** How tasks write Parquet, whatever the session says: microseconds (INT96 has no bounds), the proleptic calendar, no legacy layout. */
  static LocalProperties parquet(SparkSession session) {
    return new LocalProperties(session,
        new String[] {"spark.sql.parquet.outputTimestampType", "spark.sql.parquet.writeLegacyFormat",
            "spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite"},
        new String[] {"TIMESTAMP_MICROS", "false", "CORRECTED", "CORRECTED"});
  }

  void end() {
    for (int i = 0; i < keys.length; i++) session.sparkContext().setLocalProperty(keys[i], before[i]);
  }
}
