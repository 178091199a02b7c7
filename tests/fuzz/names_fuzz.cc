// Names of topics and subscriptions, endpoints and lists of failpoints: what the check takes is
// taken by the emulator, and what is said of the rest can be shown.
#include "extension/rules/failpoint_list.h"
#include "proto/rules/endpoint.h"
#include "proto/rules/resource_name.h"
#include "proto/rules/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "worker/emulator/rules/validation.h"

using postbox::fuzz::Input;
namespace rules = postbox::pubsub;

namespace {

// An error text of a valid text is valid as well, and not longer than somebody reads.
void CheckProblem(const std::string& problem, std::string_view text) {
  FUZZ_CHECK(!rules::IsValidUtf8(text) || rules::IsValidUtf8(problem), problem);
  FUZZ_CHECK(problem.size() < 700, problem);
}

void CheckName(std::string_view project, std::string_view name, bool topic) {
  const std::string problem =
      topic ? rules::CheckTopicName(name) : rules::CheckSubscriptionName(name);
  const std::string no_project = rules::CheckProjectId(project);
  const std::string convention =
      topic ? rules::CheckTopicConvention(name) : rules::CheckSubscriptionConvention(name);
  CheckProblem(problem, name);
  CheckProblem(no_project, project);
  CheckProblem(convention, name);

  const bool full = rules::IsFullResourceName(name);
  if (!full && !no_project.empty()) return;
  const std::string completed =
      topic ? rules::TopicName(project, name) : rules::SubscriptionName(project, name);
  FUZZ_CHECK(rules::IsFullResourceName(completed), completed);
  const auto status = postbox::emulator::CheckName(completed, topic ? "topics" : "subscriptions");
  if (problem.empty()) {
    FUZZ_CHECK(status.ok(), status.ToString());
    const std::string again =
        topic ? rules::CheckTopicName(completed) : rules::CheckSubscriptionName(completed);
    FUZZ_CHECK(again.empty(), completed);
    FUZZ_CHECK(completed == (topic ? rules::TopicName("other", completed)
                                   : rules::SubscriptionName("other", completed)),
               completed);
  }
  // The emulator takes any project.
  if (status.ok() && !problem.empty()) {
    FUZZ_CHECK(problem.find("project id") != std::string::npos, problem);
  }
}

void CheckEndpoint(std::string_view setting, const char* emulator_host) {
  rules::Endpoint endpoint;
  std::string error;
  if (!rules::ParseEndpoint(setting, emulator_host, &endpoint, &error)) {
    FUZZ_CHECK(!error.empty(), setting);
    return;
  }
  rules::Endpoint again;
  const std::string written = (endpoint.plaintext ? "http://" : "https://") + endpoint.address;
  FUZZ_CHECK(rules::ParseEndpoint(written, nullptr, &again, &error), written);
  FUZZ_CHECK(again == endpoint, written);
  for (const char c : endpoint.address) FUZZ_CHECK(c > ' ' && c < 0x7F, endpoint.address);
  const std::size_t colon = endpoint.address.rfind(':');
  FUZZ_CHECK(colon != std::string::npos && colon > 0, endpoint.address);
}

void CheckFailpoints(std::string_view list, std::string_view name) {
  const bool good = rules::CheckFailpointList(list).empty();
  const std::string_view action = rules::FindFailpoint(list, name);
  if (!good) return;
  FUZZ_CHECK(action.empty() || action == "kill" || action == "error" || action == "pause", list);
  if (!list.empty() && list.back() == ',') list.remove_suffix(1);
  if (list.empty()) return;
  const std::string_view first = list.substr(0, list.find('='));
  FUZZ_CHECK(rules::FindFailpoint(list, first) ==
                 list.substr(first.size() + 1, list.find(',') - first.size() - 1),
             list);
}

}  // namespace

// A project, then a line that is taken for each of them, and one for PUBSUB_EMULATOR_HOST or a
// failpoint.
FUZZ(Input* input) {
  const std::string_view project = input->Line();
  const std::string_view text = input->Line();
  const std::string other(input->Line());
  CheckName(project, text, true);
  CheckName(project, text, false);
  CheckEndpoint(text, nullptr);
  CheckEndpoint("", other.c_str());
  CheckFailpoints(text, other);
}
