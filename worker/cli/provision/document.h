// The text of a file for `postbox provision`, YAML or JSON, as JSON values.
//
// Values keep their kind: a plain scalar of YAML is null, a truth value, a whole number, a fraction
// or a text, by the core schema of YAML 1.2; what stands in quotes is a text. A key that occurs
// twice in a mapping is an error in both formats.
#ifndef POSTBOX_WORKER_CLI_PROVISION_DOCUMENT_H_
#define POSTBOX_WORKER_CLI_PROVISION_DOCUMENT_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace postbox::cli {

using Json = nlohmann::ordered_json;

// What a file may have, so that a small one cannot ask for much memory or time: aliases of YAML are
// expanded.
inline constexpr size_t kMaxDocumentBytes = 10'000'000;
inline constexpr size_t kMaxDocumentValues = 200'000;
inline constexpr int kMaxDocumentDepth = 32;

// `name` decides: a name that ends with .json has JSON; another text is JSON if it can be read as
// JSON, else YAML. On failure returns nothing and puts the reason into `error`, with the line.
std::optional<Json> ParseDocument(const std::string& name, const std::string& text,
                                  std::string* error);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_DOCUMENT_H_
