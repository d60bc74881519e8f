package lakelog;

import org.apache.hadoop.fs.Path;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Files go straight to their final, unique names; the driver hears exactly the winning tasks' files. Executors get Spark's own class. */
public class DeltaCommitter extends ManifestFileCommitProtocol {
  private final String job;
  private final String root;
  private final transient StringBuilder lines;
  private final transient java.util.List told;

  public DeltaCommitter(String job, String root) {
    super(job, root);
    this.job = job;
    this.root = root;
    this.lines = new StringBuilder();
    this.told = java.util.Collections.synchronizedList(new java.util.ArrayList());
  }

  /** Public: Janino compiles a private one under another name, which serialisation does not find. */
  public Object writeReplace() { return new ManifestFileCommitProtocol(job, root); }

  public void setupJob(org.apache.hadoop.mapreduce.JobContext context) {}

  public void onTaskCommit(FileCommitProtocol.TaskCommitMessage message) { told.addAll(files(message)); }

  private static java.util.List files(FileCommitProtocol.TaskCommitMessage message) {
    return new java.util.ArrayList(CollectionConverters.asJava((Seq) message.obj()));
  }

  public void commitJob(org.apache.hadoop.mapreduce.JobContext context, Seq messages) {
    java.util.Iterator all = CollectionConverters.asJava(messages).iterator();
    while (all.hasNext()) {
      java.util.Iterator files = files((FileCommitProtocol.TaskCommitMessage) all.next()).iterator();
      while (files.hasNext()) {
        SinkFileStatus status = (SinkFileStatus) files.next();
        lines.append(status.path()).append('\t').append(status.size()).append('\t').append(status.modificationTime()).append('\n');
      }
    }
  }

  /** Nothing was committed to the log: what finished tasks wrote is garbage. Best effort; a reader never sees it either way. */
  public void abortJob(org.apache.hadoop.mapreduce.JobContext context) {
    Object[] files = told.toArray();
    for (int i = 0; i < files.length; i++) {
      try {
        Path path = new Path(java.net.URI.create(((SinkFileStatus) files[i]).path()));
        path.getFileSystem(context.getConfiguration()).delete(path, false);
      } catch (Exception e) {
        org.slf4j.LoggerFactory.getLogger("lakelog").warn("could not delete " + files[i], e);
      }
    }
  }

  public String lines() { return lines.toString(); }
}
