// Reads the values of a projection's columns from an event: from JSON fields of its payload and
// from its other fields.
//
// A constraint of a domain may apply another event through the same projection while values are
// read. The values belong to the call (bound_values.h); what the functions of types keep between
// calls does, too, in a call within a call.
#ifndef POSTBOX_EXTENSION_APPLY_EVENT_BINDER_H_
#define POSTBOX_EXTENSION_APPLY_EVENT_BINDER_H_

#include "extension/apply/bound_values.h"
#include "extension/apply/column_value.h"
#include "extension/apply/field_watch.h"
#include "extension/apply/projection_columns.h"
#include "extension/apply/value_shape.h"

namespace postbox {

class EventBinder {
 public:
  // `context` lives as long as the binder.
  EventBinder(int64 projection, const ProjectionColumns& columns, MemoryContext context);

  // The values of the key and the version; those of the rest are to be added before the row is
  // written. Throws if the event has no value for a column of the key, or no positive version.
  BoundValues BindKey(const InboxEvent& event, PayloadJson* payload);
  void BindRest(const InboxEvent& event, PayloadJson* payload, BoundValues* bound);
  // The values of an event that is compared and not applied, so that its fields are not counted.
  // Without those from $attributes: attributes are added on the way.
  BoundValues BindAll(const InboxEvent& event, PayloadJson* payload);

  // Whether the relation is that of a composite type of a column: it may get another shape.
  bool DependsOn(Oid relation) const;

 private:
  struct Column {
    std::string name;
    ColumnSource source;
    size_t place;  // of a JSON field: that of its path
    ValueShape shape;
    ColumnInput input;
  };

  void Add(const ProjectionColumn& resolved, MemoryContext context);
  void Bind(const InboxEvent& event, PayloadJson* payload, size_t first, size_t end,
            BoundValues* bound);
  void BindColumn(size_t column, const InboxEvent& event, PayloadJson* payload, BoundValues* bound);

  const std::string target_name_;
  const size_t key_size_;
  std::vector<Column> columns_;
  std::vector<Oid> relations_of_types_;  // of composite types
  json::Paths paths_;                    // of all JSON fields
  // Whether the key, or another column, takes a JSON field.
  bool key_reads_payload_ = false;
  bool rest_reads_payload_ = false;
  FieldWatch watch_;
  int binding_ = 0;  // how many calls are reading values
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_EVENT_BINDER_H_
