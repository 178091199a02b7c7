#include "worker/cli/provision/provision.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "worker/cli/base/open_place.h"
#include "worker/cli/provision/database_file.h"
#include "worker/cli/provision/differences.h"
#include "worker/cli/provision/print.h"
#include "worker/cli/provision/remote.h"

namespace postbox::cli {
namespace {

// How often it looks and goes on after an error that may pass, and the pauses between: 0.5, 1, 2
// and 4 seconds.
constexpr int kRounds = 5;
constexpr std::chrono::milliseconds kFirstPause{500};

void Warn(const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); }

// Two changes at once, a lost answer, or a server that does not see yet what it has just made.
bool MayPass(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::NOT_FOUND:
      return true;
    default:
      return false;
  }
}

class Provision {
 public:
  Provision(const ProvisionOptions& options, const Desired& desired, PubSubAdmin* admin)
      : options_(options), desired_(desired), server_(admin) {}

  int Run() {
    for (int round = 1;; ++round) {
      const CallResult result = Round();
      if (exit_status_) return *exit_status_;
      if (result.ok()) return Summary();
      if (round == kRounds || !MayPass(result.status.error_code())) return FailAt(result);
      std::this_thread::sleep_for(kFirstPause * (1 << (round - 1)));
    }
  }

 private:
  // Looks at the server and does what is missing. What was done before is not missing any more.
  CallResult Round() {
    Actual actual;
    CallResult result = server_.Read(desired_, &actual);
    if (!result.ok()) return result;
    Plan plan = MakePlan(desired_, actual);
    if (Refused(plan)) {
      exit_status_ = 1;
      return {};
    }
    result = server_.Validate(desired_, plan);
    if (!result.ok()) return result;
    if (options_.dry_run) {
      for (const Step& step : plan.steps) std::printf("%s", StepText(step).c_str());
      std::puts(plan.steps.empty() ? "nothing to change" : "dry run: nothing was changed");
      exit_status_ = plan.steps.empty() ? 0 : kDiffers;
      return {};
    }
    left_out_ = plan.unsupported;
    CountUnsure(plan);
    for (const Step& step : plan.steps) {
      result = Take(step);
      if (result.ok()) continue;
      unsure_ = step;
      return result;
    }
    return {};
  }

  CallResult Take(const Step& step) {
    const size_t before = left_out_.size();
    CallResult result = server_.Apply(step, options_.skip_unsupported, &left_out_);
    if (!result.ok()) return result;
    // A step of which nothing was taken has changed nothing.
    if (step.kind == Step::kUpdate && left_out_.size() - before == step.changes.size()) return {};
    Count(step);
    return {};
  }

  void Count(const Step& step) {
    std::printf("%s", StepText(step).c_str());
    std::fflush(stdout);
    ++(step.kind == Step::kCreate ? created_ : changed_);
  }

  // A step whose answer did not come was done if it is not wanted any more.
  void CountUnsure(const Plan& plan) {
    if (!unsure_) return;
    const bool wanted = std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& one) {
      return one.kind == unsure_->kind && one.what == unsure_->what && one.name == unsure_->name;
    });
    if (!wanted) Count(*unsure_);
    unsure_.reset();
  }

  // Whether nothing may be done; then the reasons are printed.
  bool Refused(const Plan& plan) {
    for (const Objection& one : plan.refusals) Fail(one.name + ": " + one.reason, one.remedy);
    const bool missing = !plan.unsupported.empty() && !options_.skip_unsupported;
    for (const Objection& one : plan.unsupported) {
      if (missing) Fail(one.name + ": " + one.reason);
      if (!missing && options_.dry_run) Warn("left out: " + one.name + ": " + one.reason);
    }
    if (missing) Fail("nothing was changed", "--skip-unsupported leaves out what the server lacks");
    return !plan.refusals.empty() || missing;
  }

  int FailAt(const CallResult& result) {
    std::string remedy = RemedyOf(result.status.error_code());
    if (result.status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      remedy = "--skip-unsupported leaves out the fields that the server names as not implemented";
    }
    if (created_ + changed_ > 0) {
      remedy += std::string(remedy.empty() ? "" : "; ") +
                "the changes listed above were made: run the command again to continue";
    }
    return Fail(result.subject + ": " + StatusText(result.status), remedy);
  }

  int Summary() {
    for (const Objection& one : left_out_) Warn("left out: " + one.name + ": " + one.reason);
    if (created_ + changed_ == 0) {
      std::printf("nothing to change");
    } else {
      std::printf("%d created, %d changed", created_, changed_);
    }
    if (!left_out_.empty()) std::printf(", %zu left out", left_out_.size());
    std::printf("\n");
    if (left_out_.empty() || options_.skip_unsupported) return 0;
    return Fail("the server did not accept everything",
                "--skip-unsupported accepts what the server lacks");
  }

  const ProvisionOptions& options_;
  const Desired& desired_;
  Remote server_;
  LeftOut left_out_;
  std::optional<Step> unsure_;  // failed in the round before, with an error that may pass
  int created_ = 0;
  int changed_ = 0;
  std::optional<int> exit_status_;
};

int RunFile(const ProvisionOptions& options) {
  Failure failure;
  const std::optional<std::string> text = ReadProvisionFile(options.file, &failure);
  if (!text) return Fail(failure.problem, failure.remedy);
  const std::string shown = options.file == "-" ? "standard input" : options.file;
  std::string error;
  const std::optional<Json> document = ParseDocument(options.file, *text, &error);
  if (!document) return Fail(shown + ": " + error);

  PlaceOptions place = options.place;
  if (place.project.empty()) place.project = ProjectOf(*document);
  std::optional<OpenPlace> broker;
  if (place.project.empty()) {
    if (!options.print.empty()) {
      return Fail(shown + ": project: this key is needed, or --project");
    }
    broker = Connect(place);
    if (!broker) return 1;
    place.project = broker->project;
  }

  Problems problems(shown);
  const std::string directory =
      options.file == "-" ? "" : std::filesystem::path(options.file).parent_path().string();
  const Desired desired = ReadDesired(*document, place.project, directory, &problems);
  for (const std::string& line : problems.lines()) Fail(line);
  if (!problems.lines().empty())
    return Fail("nothing was changed", "docs/guides/provision.md describes the format");
  for (const std::string& warning : desired.warnings) Warn(warning);
  if (!options.print.empty()) {
    const std::string printed =
        options.print == "gcloud" ? PrintGcloud(desired) : PrintTerraform(desired);
    std::fwrite(printed.data(), 1, printed.size(), stdout);
    return 0;
  }
  if (!broker) broker = Connect(place);
  if (!broker) return 1;
  return Provision(options, desired, broker->admin.get()).Run();
}

}  // namespace

int RunProvision(const ProvisionOptions& options) {
  if (options.from_database) return WriteDatabaseFile(options.place, options.file);
  return RunFile(options);
}

}  // namespace postbox::cli
