#include "extension/apply/event_binder.h"

#include "extension/base/guard.h"

namespace postbox {
namespace {

// Counts the calls that are reading values.
class Nested {
 public:
  explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
  ~Nested() { --*depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int* const depth_;
};

void RequireVersion(const InboxEvent& event) {
  if (event.IsNull(EventField::kVersion)) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "event has no version",
          "A projection orders events by their version.");
  }
  if (event.version() <= 0) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "version " + std::to_string(event.version()) + " of the event is not positive",
          "Versions of an aggregate begin at 1.");
  }
}

// The value of a JSON field, which is there.
Datum FieldValue(const ColumnSource& source, const ValueShape& shape, ColumnInput* input,
                 json::Value value, PayloadJson* payload, bool* null) {
  const size_t names = source.path.size();
  if (value.names < names) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "field \"" + PathText(source.path, value.names) +
                                               "\" of the payload is " + JsonKindName(value.kind) +
                                               ", not an object");
  }
  std::string shaped;
  if (input->structured || shape.kind == ValueShape::Kind::kBytes) {
    shaped = ShapedValue(shape, value.text);
    value.text = shaped;
  }
  return Pg([&] { return ColumnFromJson(input, value, payload, null); });
}

}  // namespace

EventBinder::EventBinder(int64 projection, const ProjectionColumns& columns, MemoryContext context)
    : target_name_(columns.target_name), key_size_(columns.key_size), watch_(projection) {
  for (const ProjectionColumn& column : columns.columns) Add(column, context);
}

void EventBinder::Add(const ProjectionColumn& resolved, MemoryContext context) {
  Column column;
  column.name = resolved.name;
  column.source = resolved.source;
  column.input = Pg(
      [&] { return MakeColumnInput(resolved.type, resolved.typmod, column.source.form, context); });
  if (!column.source.event_field) {
    std::vector<std::string> path;
    for (const std::string& name : column.source.path) path.push_back(Utf8Text(name));
    column.place = paths_.Add(path);
    if (column.source.form == ValueForm::kPlain) {
      column.shape = ShapeOf(resolved.type, &relations_of_types_);
    }
    const bool is_key = columns_.size() < key_size_;
    (is_key ? key_reads_payload_ : rest_reads_payload_) = true;
    if (!is_key) watch_.Add(column.name, std::move(path), column.place, resolved.by_chance);
  }
  columns_.push_back(std::move(column));
}

bool EventBinder::DependsOn(Oid relation) const {
  return std::find(relations_of_types_.begin(), relations_of_types_.end(), relation) !=
         relations_of_types_.end();
}

void EventBinder::BindColumn(size_t i, const InboxEvent& event, PayloadJson* payload,
                             BoundValues* bound) {
  Column& column = columns_[i];
  ColumnInput* input = &column.input;
  ColumnInput own;
  if (binding_ > 1) {
    own = WithoutState(column.input);
    input = &own;
  }
  bool null = true;
  bool present = true;
  if (column.source.event_field) {
    Pg([&] {
      bound->values[i] = ColumnFromEvent(input, *column.source.event_field, event, payload, &null);
    });
  } else {
    const json::Value& value = bound->fields[column.place];
    present = value.kind != json::Kind::kAbsent;
    if (present)
      bound->values[i] = FieldValue(column.source, column.shape, input, value, payload, &null);
  }
  bound->nulls[i] = null ? 'n' : ' ';
  bound->present[i] = present ? '1' : '0';
}

// The values of the columns from `first` to before `end`.
void EventBinder::Bind(const InboxEvent& event, PayloadJson* payload, size_t first, size_t end,
                       BoundValues* bound) {
  const Nested nested(&binding_);
  const bool reads = end > key_size_ + 1 ? rest_reads_payload_ : key_reads_payload_;
  if (reads && bound->fields.empty()) payload->Find(paths_, &bound->fields);
  for (size_t i = first; i < end; ++i) {
    const Column& column = columns_[i];
    try {
      BindColumn(i, event, payload, bound);
    } catch (PostgresError& error) {
      error.detail += (error.detail.empty() ? "" : " ") +
                      std::string("The value is for column \"") + column.name + "\" of " +
                      target_name_ + ", from " + SourceText(column.source) + ".";
      throw;
    }
    if (i < key_size_ && bound->nulls[i] == 'n') {
      Throw(ERRCODE_NOT_NULL_VIOLATION,
            "event has no value for key column \"" + column.name + "\" of " + target_name_,
            column.source.event_field
                ? std::string("Its ") + EventFieldName(*column.source.event_field) + " is null."
                : "Its payload has no field \"" + PathText(column.source.path) +
                      "\", or null there.");
    }
  }
}

BoundValues EventBinder::BindKey(const InboxEvent& event, PayloadJson* payload) {
  RequireVersion(event);
  BoundValues bound(columns_.size());
  bound.present.assign(columns_.size(), '1');
  Bind(event, payload, 0, key_size_ + 1, &bound);
  return bound;
}

void EventBinder::BindRest(const InboxEvent& event, PayloadJson* payload, BoundValues* bound) {
  Bind(event, payload, key_size_ + 1, columns_.size(), bound);
  watch_.Note(event.event_type, *payload, bound->fields);
}

BoundValues EventBinder::BindAll(const InboxEvent& event, PayloadJson* payload) {
  BoundValues bound = BindKey(event, payload);
  Bind(event, payload, key_size_ + 1, columns_.size(), &bound);
  for (size_t i = key_size_ + 1; i < columns_.size(); ++i) {
    if (columns_[i].source.event_field == EventField::kAttributes) bound.present[i] = '0';
  }
  return bound;
}

}  // namespace postbox
