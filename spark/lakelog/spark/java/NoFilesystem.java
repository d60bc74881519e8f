package lakelog;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** Stands where Spark wants a filesystem to make a path absolute with: of a path with scheme and authority it asks nothing. */
public class NoFilesystem extends RawLocalFileSystem {
  protected void checkPath(Path path) {}
}
