// What the columns of a table outbox are called, and how they are read and written.
//
// A table that create_outbox made has the standard names and types; every expression below is then
// the bare name of its column. An adopted table may have other names (they are in
// postbox.outbox.columns) and other types (they are in the catalogs). The columns with the state of
// a row, and seq, have their standard names everywhere.
#ifndef POSTBOX_EXTENSION_SHARED_OUTBOX_COLUMNS_H_
#define POSTBOX_EXTENSION_SHARED_OUTBOX_COLUMNS_H_

#include "extension/base/spi.h"

namespace postbox {

struct OutboxColumn {
  std::string name;  // quoted
  std::string type;  // as format_type() writes it, without a modifier
  bool nullable = false;

  bool IsText() const { return type == "text" || type == "character varying"; }
  bool operator==(const OutboxColumn&) const = default;
};

struct OutboxColumns {
  OutboxColumn id{"id", "uuid"};
  OutboxColumn aggregate_type{"aggregate_type", "text"};
  OutboxColumn aggregate_id{"aggregate_id", "text"};
  OutboxColumn event_type{"event_type", "text"};
  OutboxColumn version{"version", "bigint"};
  OutboxColumn schema_version{"schema_version", "text"};
  OutboxColumn payload{"payload", "bytea"};
  OutboxColumn attributes{"attributes", "jsonb"};
  OutboxColumn occurred_at{"occurred_at", "timestamp with time zone"};

  bool operator==(const OutboxColumns&) const = default;

  // In a table without versions, the place of an event in the outbox is its version.
  bool VersionIsSeq() const { return version.name == "seq"; }

  // Expressions of the standard type. `of` is the alias of the table with its dot, or nothing. That
  // of the aggregate id is also what the index of keys is made on.
  std::string AggregateId(const std::string& of = "") const {
    const std::string column = of + aggregate_id.name;
    return aggregate_id.IsText() ? column : "(" + column + "::text)";
  }
  std::string Version(const std::string& of = "") const {
    return of + version.name + (version.type == "bigint" ? "" : "::bigint");
  }
  std::string SchemaVersion(const std::string& of = "") const {
    const std::string column = of + schema_version.name;
    return Or(schema_version, schema_version.IsText() ? column : column + "::text", "'v1'");
  }
  // JSON and text are sent as UTF-8.
  std::string Payload(const std::string& of = "") const {
    const std::string column = of + payload.name;
    return Or(payload,
              payload.type == "bytea" ? column : "convert_to(" + column + "::text, 'UTF8')",
              "''::bytea");
  }
  std::string Attributes(const std::string& of = "") const {
    const std::string column = of + attributes.name;
    return Or(attributes, attributes.type == "jsonb" ? column : column + "::jsonb", "'{}'::jsonb");
  }
  // A time without zone is taken as UTC.
  std::string OccurredAt(const std::string& of = "") const {
    const std::string column = of + occurred_at.name;
    return Or(occurred_at, HasZone() ? column : "(" + column + " AT TIME ZONE 'UTC')", "now()");
  }

  // The statement that outbox_emit runs; its parameters have the standard types, in the order of
  // the columns in it. `more`: columns whose parameters follow.
  std::string InsertInto(const std::string& table,
                         std::initializer_list<const char*> more = {}) const {
    const auto as = [](const char* parameter, const OutboxColumn& column) {
      return column.IsText() ? std::string(parameter) : parameter + ("::" + column.type);
    };
    std::string names = " (" + id.name + ", seq, " + aggregate_type.name + ", " +
                        aggregate_id.name + ", " + event_type.name;
    std::string values = "$1, $2, $3, " + as("$4", aggregate_id) + ", $5";
    const auto add = [&](const OutboxColumn& column, const std::string& value) {
      names += ", " + column.name;
      values += ", " + value;
    };
    if (!VersionIsSeq()) add(version, version.type == "bigint" ? "$6" : as("$6", version));
    // Where schema versions are numbers, v2 is 2.
    add(schema_version, schema_version.IsText() ? "$7" : "ltrim($7, 'v')::" + schema_version.type);
    add(payload, payload.type == "bytea" ? "$8" : as("convert_from($8, 'UTF8')", payload));
    add(attributes, attributes.type == "jsonb" ? "$9" : as("$9", attributes));
    add(occurred_at, HasZone() ? "$10" : "$10 AT TIME ZONE 'UTC'");
    int parameter = 10;
    for (const char* column : more) {
      names += std::string(", ") + column;
      values += ", $" + std::to_string(++parameter);
    }
    return "INSERT INTO " + table + names + ") VALUES (" + values + ")";
  }

 private:
  bool HasZone() const { return occurred_at.type == "timestamp with time zone"; }

  static std::string Or(const OutboxColumn& column, const std::string& value,
                        const char* otherwise) {
    return column.nullable ? "coalesce(" + value + ", " + otherwise + ")" : value;
  }
};

// What an event of a log must have in common with others to keep its order among them: the
// aggregate id. An event that its key may pass is alone: its id may be that of an aggregate, too,
// so its key begins with kKeyOfEvent. The index of keys of the table of parked events is made on
// it. In a table outbox, the aggregate id is the key of every event.
inline constexpr std::string_view kKeyOfEvent = "postbox_event:";
inline std::string LogKey(const std::string& of = "") {
  return "(CASE WHEN " + of + "attributes ? 'postbox_key_may_pass'::text THEN '" +
         std::string(kKeyOfEvent) + "'::text || " + of + "id::text ELSE " + of +
         "aggregate_id END)";
}

// The columns of a registered table outbox as they are now. A column that does not exist keeps its
// standard name. Needs SPI; looks up by name only postbox.outbox and the catalogs.
inline OutboxColumns ReadOutboxColumns(Oid relation) {
  OutboxColumns columns;
  const std::array<std::pair<const char*, OutboxColumn*>, 9> standard = {{
      {"id", &columns.id},
      {"aggregate_type", &columns.aggregate_type},
      {"aggregate_id", &columns.aggregate_id},
      {"event_type", &columns.event_type},
      {"version", &columns.version},
      {"schema_version", &columns.schema_version},
      {"payload", &columns.payload},
      {"attributes", &columns.attributes},
      {"occurred_at", &columns.occurred_at},
  }};
  for (const auto& [name, column] : standard) {
    Parameters parameters;
    parameters.AddOid(REGCLASSOID, relation).AddText(name);
    const uint64 found =
        Run("SELECT pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, NULL), "
            "NOT a.attnotnull FROM postbox.outbox o JOIN pg_catalog.pg_attribute a "
            "ON a.attrelid OPERATOR(pg_catalog.=) o.relation AND a.attname OPERATOR(pg_catalog.=) "
            "coalesce(o.columns OPERATOR(pg_catalog.->>) $2, $2) AND NOT a.attisdropped "
            "WHERE o.relation OPERATOR(pg_catalog.=) $1",
            parameters);
    if (found == 0) continue;
    *column = {PrintedColumn(0, 1), PrintedColumn(0, 2), BoolColumn(0, 3)};
  }
  return columns;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_OUTBOX_COLUMNS_H_
