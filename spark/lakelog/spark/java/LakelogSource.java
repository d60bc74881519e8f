package lakelog;

/** format("lakelog"): the same source under the name that no other implementation takes. */
public class LakelogSource extends DeltaSource {
  public String shortName() { return "lakelog"; }
}
