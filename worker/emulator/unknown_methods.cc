#include "worker/emulator/unknown_methods.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace postbox::emulator {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const std::string& method) {
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            absl::StrCat(method, " is not implemented by this emulator")});
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  gate_->CountCall("unknown");
  gate_->CountError("unknown");
  return new Refusal(context->method());
}

}  // namespace postbox::emulator
