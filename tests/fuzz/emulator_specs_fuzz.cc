// What the command line of the emulator says: faults, subscriptions; and the ack ids that come back
// to it.
#include <cmath>

#include "tests/fuzz/fuzz.h"
#include "worker/emulator/broker/resource_spec.h"
#include "worker/emulator/faults.h"
#include "worker/emulator/rules/validation.h"
#include "worker/emulator/subscription/ack_id.h"

using postbox::fuzz::Input;
namespace emulator = postbox::emulator;

namespace {

void CheckFault(const std::string& spec) {
  const auto fault = emulator::ParseFault(spec);
  if (!fault.ok()) {
    FUZZ_CHECK(std::string(fault.status().message()).starts_with("fault"), spec);
    return;
  }
  FUZZ_CHECK(fault->code() >= 0 && fault->code() <= 16, spec);
  FUZZ_CHECK(fault->count() >= 0 && fault->skip() >= 0 && fault->trailer_bytes() >= 0, spec);
  FUZZ_CHECK(fault->latency_ms() >= 0, spec);
  const double probability = fault->probability();
  FUZZ_CHECK(probability >= 0 && probability <= 1 && !std::signbit(probability), spec);
  FUZZ_CHECK(
      fault->code() != 0 || fault->latency_ms() != 0 || spec.find("action") != std::string::npos,
      spec);

  emulator::Faults faults;
  faults.Add(*fault);
  google::pubsub::v1::PubsubMessage message;
  message.set_ordering_key(fault->ordering_key());
  if (!fault->attribute_key().empty()) {
    (*message.mutable_attributes())[fault->attribute_key()] = fault->attribute_value();
  }
  FUZZ_CHECK(emulator::Matches(*fault, message), spec);
  // A rule that is certain fires after it was skipped, and then as often as it says.
  if (probability != 0 || fault->skip() > 20) return;
  const std::string rpc = fault->rpc().empty() ? "Publish" : fault->rpc();
  std::int64_t fired = 0;
  for (int call = 0; call < 40; ++call) {
    fired += faults.Fire(rpc, {fault->action()}, [](const auto&) { return true; }).has_value();
  }
  const std::int64_t possible = 40 - fault->skip();
  FUZZ_CHECK(fired == (fault->count() == 0 ? possible : std::min(possible, fault->count())), spec);
}

void CheckSubscription(const std::string& spec) {
  auto subscription = emulator::ParseSubscription("p", spec);
  if (!subscription.ok()) return;
  FUZZ_CHECK(subscription->name().starts_with("projects/"), spec);
  FUZZ_CHECK(subscription->topic().starts_with("projects/"), spec);
  emulator::SetDefaults(&*subscription);
  const absl::Status status = emulator::CheckSubscription(*subscription);
  FUZZ_CHECK(status.ok() || !status.message().empty(), spec);
}

void CheckAckId(const std::string& text) {
  emulator::AckId id;
  if (emulator::ParseAckId(text, &id)) FUZZ_CHECK(emulator::FormatAckId(id) == text, text);
}

}  // namespace

// One line for each; the last one is also made into an ack id of the right length.
FUZZ(Input* input) {
  const std::string spec(input->Line());
  CheckFault(spec);
  CheckSubscription(spec);
  const emulator::AckId id{static_cast<std::uint64_t>(input->Integer()),
                           static_cast<std::uint64_t>(input->Integer()), input->Byte()};
  std::string text = emulator::FormatAckId(id);
  CheckAckId(text);
  if (!input->empty()) text[input->Byte() % text.size()] = static_cast<char>(input->Byte());
  CheckAckId(text);
  CheckAckId(spec);
}
