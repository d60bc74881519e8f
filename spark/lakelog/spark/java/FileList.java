package lakelog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The files of one snapshot as JVM objects, made in bulk and kept for the newest snapshot of each table. */
public class FileList {
  private static final int KEPT = 64;
  private static final java.util.LinkedHashMap LISTS = new java.util.LinkedHashMap(16, 0.75f, true);
  final String snapshot;
  private final StructType schema;
  private final InternalRow[] tuples;
  private final int[] tupleOf;
  private final FileStatus[] statuses;

  private FileList(String snapshot, StructType schema, InternalRow[] tuples, int[] tupleOf, FileStatus[] statuses) {
    this.snapshot = snapshot;
    this.schema = schema;
    this.tuples = tuples;
    this.tupleOf = tupleOf;
    this.statuses = statuses;
  }

  /** The list of a snapshot, or null when it is not kept here. */
  static FileList kept(String snapshot) {
    synchronized (LISTS) { return (FileList) LISTS.get(snapshot); }
  }

  public static void forget() {
    synchronized (LISTS) { LISTS.clear(); }
  }

  private static String[] known() {
    synchronized (LISTS) { return (String[]) LISTS.keySet().toArray(new String[0]); }
  }

  /** Asks Python for the files of a snapshot, or of the newest one, that the filters may match. */
  static Answer ask(DeltaLogFileIndex index, String snapshot, String filters) {
    FileList here = snapshot == null ? null : kept(snapshot);
    if (here != null && filters.equals("[]")) {
      Answer answer = new Answer();
      answer.snapshot = snapshot;
      answer.files = here;
      return answer;
    }
    Answer answer = answer(index, snapshot, filters, known());
    // the list was dropped between the question and the answer: ask for all of it
    return answer.files != null ? answer : answer(index, snapshot, filters, new String[0]);
  }

  private static Answer answer(DeltaLogFileIndex index, String snapshot, String filters, String[] known) {
    String[] wanted = new String[] {index.root, index.version, index.schemaId, snapshot, filters};
    return read(index.partitions, (byte[]) Door.ask(index.session, "list", Door.json(wanted), Door.json(known), null));
  }

  public static class Answer {
    String snapshot;
    byte[] keep;
    FileList files;
  }

  /** Python's answer: snapshot id, a byte per file (none: all), and the files where the JVM does not keep them yet. */
  private static Answer read(StructType schema, byte[] bytes) {
    try {
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
      Answer answer = new Answer();
      answer.snapshot = text(in);
      int mask = in.readInt();
      if (mask >= 0) {
        answer.keep = new byte[mask];
        in.readFully(answer.keep);
      }
      if (in.readInt() == 0) {
        answer.files = kept(answer.snapshot);
        return answer;
      }
      String tuples = text(in);
      answer.files = made(answer.snapshot, schema, Door.parse(tuples), text(in));
      synchronized (LISTS) {
        LISTS.put(answer.snapshot, answer.files);
        if (LISTS.size() > KEPT) LISTS.remove(LISTS.keySet().iterator().next());
      }
      return answer;
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String text(DataInputStream in) throws java.io.IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
  }

  private static FileList made(String snapshot, StructType schema, JsonNode tuples, String lines) {
    InternalRow[] rows = new InternalRow[tuples.size()];
    for (int i = 0; i < rows.length; i++) {
      Object[] values = new Object[schema.length()];
      for (int c = 0; c < values.length; c++) values[c] = value((JsonNode) ((JsonNode) tuples.get(i)).get(c), schema.apply(c).dataType());
      rows[i] = new GenericInternalRow(values);
    }
    java.util.StringTokenizer each = new java.util.StringTokenizer(lines, "\n");
    FileStatus[] statuses = new FileStatus[each.countTokens()];
    int[] tupleOf = new int[statuses.length];
    for (int i = 0; i < statuses.length; i++) {
      String[] f = each.nextToken().split("\t");
      statuses[i] = new FileStatus(Long.parseLong(f[1]), false, 1, 134217728L, Long.parseLong(f[2]), new Path(java.net.URI.create(f[0])));
      tupleOf[i] = Integer.parseInt(f[3]);
    }
    return new FileList(snapshot, schema, rows, tupleOf, statuses);
  }

  /** Catalyst's own form of a partition value, which Python gives as a number, a string, or Base64 for binary. */
  private static Object value(JsonNode told, DataType type) {
    if (told == null || told.isNull()) return null;
    String name = type.typeName();
    if (name.equals("string") || name.startsWith("char") || name.startsWith("varchar")) return UTF8String.fromString(told.asText());
    if (name.equals("long") || name.equals("timestamp") || name.equals("timestamp_ntz")) return new Long(told.asLong());
    if (name.equals("integer") || name.equals("date")) return new Integer(told.asInt());
    if (name.equals("short")) return new Short((short) told.asInt());
    if (name.equals("byte")) return new Byte((byte) told.asInt());
    if (name.equals("boolean")) return Boolean.valueOf(told.asBoolean());
    if (name.equals("double")) return Double.valueOf(told.asText());
    if (name.equals("float")) return Float.valueOf(told.asText());
    if (name.equals("binary")) return java.util.Base64.getDecoder().decode(told.asText());
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return Decimal.apply(new java.math.BigDecimal(told.asText()), decimal.precision(), decimal.scale());
    }
    throw new IllegalArgumentException("a partition column cannot be of type " + name);
  }

  /** Which partition tuples the filters keep; Spark does not check partition filters again after the listing. */
  boolean[] matching(Seq filters) {
    boolean[] keep = new boolean[tuples.length];
    java.util.Arrays.fill(keep, true);
    java.util.Iterator all = CollectionConverters.asJava(filters).iterator();
    while (all.hasNext()) {
      InterpretedPredicate predicate = new InterpretedPredicate((Expression) ((Expression) all.next()).transform(new Bind()));
      predicate.initialize(0);
      for (int i = 0; i < keep.length; i++) keep[i] = keep[i] && predicate.eval(tuples[i]);
    }
    return keep;
  }

  /** Attributes become ordinals of the partition tuple, found by name as Spark itself does for file listings. */
  public class Bind extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) { return node instanceof AttributeReference; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      String name = ((Attribute) node).name();
      for (int i = 0; i < schema.length(); i++) {
        if (schema.apply(i).name().equalsIgnoreCase(name)) return new BoundReference(i, schema.apply(i).dataType(), true);
      }
      throw new IllegalStateException(name + " is no partition column");
    }
  }

  Seq directories(byte[] keep, Seq partitionFilters, boolean numbered, byte[] subset) {
    boolean[] wanted = matching(partitionFilters);
    java.util.ArrayList made = new java.util.ArrayList();
    java.util.ArrayList[] grouped = new java.util.ArrayList[tuples.length];
    for (int i = 0; i < statuses.length; i++) {
      if ((keep != null && keep[i] == 0) || (subset != null && subset[i] == 0) || !wanted[tupleOf[i]]) continue;
      if (numbered) {
        made.add(PartitionDirectory.apply(withNumber(tuples[tupleOf[i]], i), new FileStatus[] {statuses[i]}));
      } else {
        if (grouped[tupleOf[i]] == null) grouped[tupleOf[i]] = new java.util.ArrayList();
        grouped[tupleOf[i]].add(statuses[i]);
      }
    }
    for (int i = 0; i < grouped.length; i++) {
      if (grouped[i] != null) made.add(PartitionDirectory.apply(tuples[i], (FileStatus[]) grouped[i].toArray(new FileStatus[0])));
    }
    return Door.seq(made);
  }

  /** One byte per file: 1 where a scan must read it. */
  byte[] wanted(byte[] keep, Seq partitionFilters, byte[] subset) {
    byte[] files = filesOf(matching(partitionFilters));
    for (int i = 0; i < files.length; i++) if ((keep != null && keep[i] == 0) || (subset != null && subset[i] == 0)) files[i] = 0;
    return files;
  }

  private InternalRow withNumber(InternalRow tuple, int number) {
    Object[] values = new Object[schema.length() + 1];
    for (int c = 0; c < schema.length(); c++) values[c] = tuple.get(c, schema.apply(c).dataType());
    values[schema.length()] = new Long(number);
    return new GenericInternalRow(values);
  }

  /** One byte per file: 1 where the file's partition tuple is marked. */
  public byte[] filesOf(boolean[] marked) {
    byte[] files = new byte[statuses.length];
    for (int i = 0; i < files.length; i++) files[i] = (byte) (marked[tupleOf[i]] ? 1 : 0);
    return files;
  }

  InternalRow[] tuples() { return tuples; }

  String[] uris() {
    String[] uris = new String[statuses.length];
    for (int i = 0; i < uris.length; i++) uris[i] = statuses[i].getPath().toUri().toString();
    return uris;
  }
}
