package lakelog;

/** The version that the scans of one query agree on; null until the first of them has asked. */
public class Pin {
  volatile String snapshot;
  final boolean fixed;

  public Pin(String snapshot) {
    this.snapshot = snapshot;
    this.fixed = snapshot != null;
  }
}
