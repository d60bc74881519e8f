package lakelog;

/** The version that the scans of one query agree on; null until the first of them has asked. */
public class Pin {
  volatile String snapshot;
  final boolean fixed;
  /** The Arrow scans of the query by what was asked: one that comes twice, in a self-join or a plan made again, is one scan. */
  final java.util.Map scans = few();

  public Pin(String snapshot) {
    this.snapshot = snapshot;
    this.fixed = snapshot != null;
  }

  static java.util.Map few() { return java.util.Collections.synchronizedMap(new Few()); }

  /** Forgets the eldest. */
  public static class Few extends java.util.LinkedHashMap {
    protected boolean removeEldestEntry(java.util.Map.Entry eldest) { return size() > 16; }
  }
}
