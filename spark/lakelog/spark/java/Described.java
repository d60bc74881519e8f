package lakelog;

import org.apache.spark.sql.classic.SparkSession;

/** What the jobs of this thread are called in Spark's UI, until the end. */
public class Described {
  private static final String KEY = "spark.job.description";
  private final SparkSession session;
  private final String before;

  public Described(SparkSession session, String description) {
    this.session = session;
    this.before = session.sparkContext().getLocalProperty(KEY);
    session.sparkContext().setLocalProperty(KEY, description);
  }

  public void end() { session.sparkContext().setLocalProperty(KEY, before); }
}
