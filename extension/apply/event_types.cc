#include "extension/apply/event_types.h"

#include "extension/base/arguments.h"

namespace postbox {

std::vector<std::string> ReadEventTypes(Datum array, const char* name) {
  if (Pg([&] { return ARR_NDIM(DatumGetArrayTypeP(array)); }) > 1) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " must have one dimension");
  }
  std::vector<std::string> types = TextArrayArgument(array, name);
  std::set<std::string> seen;
  for (const std::string& type : types) {
    if (type.empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " may not contain an empty text");
    }
    if (!seen.insert(type).second) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "event type \"" + type + "\" appears twice in " + name);
    }
  }
  return types;
}

std::string CommonTypes(const std::vector<std::string>& left,
                        const std::vector<std::string>& right) {
  std::string common;
  for (const std::string& type : left) {
    if (std::find(right.begin(), right.end(), type) == right.end()) continue;
    common += (common.empty() ? "\"" : ", \"") + type + "\"";
  }
  return common;
}

}  // namespace postbox
