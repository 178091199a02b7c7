#include "worker/emulator/rules/update_mask.h"

#include "google/protobuf/util/field_mask_util.h"

namespace postbox::emulator {

using google::protobuf::util::FieldMaskUtil;

absl::Status CheckMask(const google::protobuf::FieldMask& mask) {
  if (!mask.paths().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("update_mask must name at least one field");
}

void ReplaceField(const std::string& path, const google::protobuf::Message& wanted,
                  google::protobuf::Message* changed) {
  google::protobuf::FieldMask mask;
  mask.add_paths(path);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  FieldMaskUtil::MergeMessageTo(wanted, mask, options, changed);
}

}  // namespace postbox::emulator
