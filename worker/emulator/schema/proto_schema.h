// A schema in the language of protocol buffers: one message type, and what it contains.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_PROTO_SCHEMA_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_PROTO_SCHEMA_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"

namespace postbox::emulator {

class ProtoSchema {
 public:
  // INVALID_ARGUMENT with the reason if `definition` does not compile, imports something, or
  // defines another number of top-level types than one.
  static absl::StatusOr<std::unique_ptr<ProtoSchema>> Parse(absl::string_view definition);

  // INVALID_ARGUMENT if `data` is no message of the type.
  absl::Status CheckBinary(absl::string_view data) const;
  absl::Status CheckJson(absl::string_view data) const;

  // INVALID_ARGUMENT if this schema differs from `older` otherwise than by optional fields that
  // were added or removed.
  absl::Status CheckRevises(const ProtoSchema& older) const;

 private:
  ProtoSchema() = default;
  std::unique_ptr<google::protobuf::Message> NewMessage() const;

  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_;  // is safe for several threads
  const google::protobuf::Descriptor* type_ = nullptr;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_PROTO_SCHEMA_H_
