package lakelog;

/** Carries the message of a Python error; its id finds the Python error itself again. */
public class LakelogException extends RuntimeException {
  private final String id;

  public LakelogException(String id, String message) {
    super(message);
    this.id = id;
  }

  public String id() { return id; }
}
