package lakelog;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits$;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.MultipartIdentifierHelper;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Parquet of a table with column mapping: plans speak of logical columns, files of physical ones. Only the driver has it: what reads is Spark's own. */
public class DeltaScanFormat extends ParquetFileFormat {
  static final String FIELD_ID = "parquet.field.id";
  private static final String READ_IDS = "spark.sql.parquet.fieldId.read.enabled";
  private final StructType logical;
  private final StructType physical;
  private final boolean byId;
  private transient SparkSession batches;

  /** Two schemas of one shape; by id, the physical one names the ids. */
  public DeltaScanFormat(StructType logical, StructType physical, boolean byId) {
    this.logical = logical;
    this.physical = physical;
    this.byId = byId;
  }

  public scala.Function1 buildReaderWithPartitionValues(org.apache.spark.sql.SparkSession session, StructType dataSchema, StructType partitionSchema,
      StructType requiredSchema, Seq filters, scala.collection.immutable.Map options, Configuration conf) {
    conf.set(READ_IDS, String.valueOf(byId));
    return new ParquetFileFormat().buildReaderWithPartitionValues(reading(session), (StructType) read(dataSchema, logical, physical), partitionSchema,
        (StructType) read(requiredSchema, logical, physical), pushed(filters), options, conf);
  }

  public boolean supportBatch(org.apache.spark.sql.SparkSession session, StructType schema) { return super.supportBatch(reading(session), schema); }

  /** Spark's reader of single rows finds columns by name again, so that ids are left to the vectorized one, also where the session shuns it. */
  private synchronized org.apache.spark.sql.SparkSession reading(org.apache.spark.sql.SparkSession session) {
    if (!byId || (on(session, "spark.sql.parquet.enableVectorizedReader") && on(session, "spark.sql.parquet.enableNestedColumnVectorizedReader"))) {
      return session;
    }
    if (batches == null) {
      batches = ((SparkSession) session).cloneSession();
      batches.conf().set("spark.sql.parquet.enableVectorizedReader", true);
      batches.conf().set("spark.sql.parquet.enableNestedColumnVectorizedReader", true);
      batches.conf().set("spark.sql.codegen.wholeStage", true);
      batches.conf().set("spark.sql.codegen.maxFields", 1000000L);
    }
    return batches;
  }

  private static boolean on(org.apache.spark.sql.SparkSession session, String key) { return session.conf().get(key).equals("true"); }

  /** A part of the logical schema as files have it; what is no column of the table, such as a row's number, stays as it is. */
  private DataType read(DataType asked, DataType known, DataType there) {
    if (asked instanceof StructType && known instanceof StructType) {
      StructField[] fields = ((StructType) asked).fields();
      StructField[] made = new StructField[fields.length];
      for (int i = 0; i < fields.length; i++) {
        int at = position((StructType) known, fields[i].name());
        if (at < 0) {
          made[i] = fields[i];
          continue;
        }
        StructField file = ((StructType) there).apply(at);
        made[i] = new StructField(file.name(), read(fields[i].dataType(), ((StructType) known).apply(at).dataType(), file.dataType()),
            fields[i].nullable(), byId ? withId(fields[i].metadata(), file.metadata()) : fields[i].metadata());
      }
      return new StructType(made);
    }
    if (asked instanceof ArrayType && known instanceof ArrayType) {
      ArrayType array = (ArrayType) asked;
      return new ArrayType(read(array.elementType(), ((ArrayType) known).elementType(), ((ArrayType) there).elementType()), array.containsNull());
    }
    if (asked instanceof MapType && known instanceof MapType) {
      MapType map = (MapType) asked;
      return new MapType(read(map.keyType(), ((MapType) known).keyType(), ((MapType) there).keyType()),
          read(map.valueType(), ((MapType) known).valueType(), ((MapType) there).valueType()), map.valueContainsNull());
    }
    return asked;
  }

  private static Metadata withId(Metadata asked, Metadata file) {
    return file.contains(FIELD_ID) ? new MetadataBuilder().withMetadata(asked).putLong(FIELD_ID, file.getLong(FIELD_ID)).build() : asked;
  }

  private static int position(StructType type, String name) {
    for (int i = 0; i < type.length(); i++) if (type.apply(i).name().equals(name)) return i;
    for (int i = 0; i < type.length(); i++) if (type.apply(i).name().equalsIgnoreCase(name)) return i;
    return -1;
  }

  /** The filters that can be said of the files. Spark's Parquet filters go by name alone: where ids decide, a name may be another column's. */
  private Seq pushed(Seq filters) {
    java.util.ArrayList said = new java.util.ArrayList();
    java.util.Iterator all = CollectionConverters.asJava(filters).iterator();
    while (!byId && all.hasNext()) {
      org.apache.spark.sql.sources.Filter filter = said((org.apache.spark.sql.sources.Filter) all.next());
      if (filter != null) said.add(filter);
    }
    return Door.seq(said);
  }

  /** A filter about physical columns, or null. Filters are case classes: the attribute comes first, in combinations there are only filters. */
  private org.apache.spark.sql.sources.Filter said(org.apache.spark.sql.sources.Filter filter) {
    Product told = (Product) filter;
    Object[] parts = new Object[told.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = told.productElement(i);
      if (parts[i] instanceof org.apache.spark.sql.sources.Filter) parts[i] = said((org.apache.spark.sql.sources.Filter) parts[i]);
      else if (i == 0 && parts[i] instanceof String) parts[i] = path((String) parts[i]);
      else continue;
      if (parts[i] == null) return null;
    }
    java.lang.reflect.Constructor[] constructors = filter.getClass().getConstructors();
    try {
      return constructors.length == 1 && constructors[0].getParameterCount() == parts.length ? (org.apache.spark.sql.sources.Filter) constructors[0].newInstance(parts) : null;
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }

  private String path(String column) {
    java.util.ArrayList names = new java.util.ArrayList();
    DataType known = logical;
    DataType there = physical;
    java.util.Iterator steps;
    try {
      steps = CollectionConverters.asJava(CatalogV2Implicits$.MODULE$.parseColumnPath(column)).iterator();
    } catch (RuntimeException unparsable) {
      return null;
    }
    while (steps.hasNext()) {
      int at = known instanceof StructType ? position((StructType) known, (String) steps.next()) : -1;
      if (at < 0) return null;
      StructField file = ((StructType) there).apply(at);
      names.add(file.name());
      known = ((StructType) known).apply(at).dataType();
      there = file.dataType();
    }
    return new MultipartIdentifierHelper(Door.seq(names)).quoted();
  }

  public int hashCode() { return physical.hashCode(); }

  public boolean equals(Object o) {
    if (!(o instanceof DeltaScanFormat)) return false;
    DeltaScanFormat other = (DeltaScanFormat) o;
    return byId == other.byId && logical.equals(other.logical) && physical.equals(other.physical);
  }
}
