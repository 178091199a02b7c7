#include "worker/cli/doctor/doctor.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/rules/endpoint.h"
#include "proto/rules/resource_name.h"
#include "worker/cli/base/operator_session.h"
#include "worker/cli/base/pubsub_admin.h"
#include "worker/cli/doctor/broker_checks.h"
#include "worker/cli/doctor/report.h"

namespace postbox::cli {
namespace {

constexpr double kClockTolerance = 5;  // seconds

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  Report Run() {
    if (!CheckDatabase() || options_.offline) return std::move(report_);
    ReadConfiguration();
    if (publications_.empty() && subscriptions_.empty()) {
      report_.Ok("endpoint", "", "not checked: there are no publications and no subscriptions");
    } else if (CheckEndpoint()) {
      for (const PublicationRow& row : publications_) CheckPublication(row);
      for (const SubscriptionRow& row : subscriptions_) CheckOneSubscription(row);
    }
    return std::move(report_);
  }

 private:
  // False if nothing else can be asked.
  bool CheckDatabase() {
    std::string error;
    connection_ = OpenDatabase(options_.dsn, "postbox doctor", &error);
    if (!connection_) {
      report_.Error("database", "", error, ConnectionRemedy(error));
      return false;
    }
    const puller::QueryResult about = connection_->Execute(
        "SELECT current_setting('server_version'), current_database(), current_user, "
        "(SELECT extversion FROM pg_extension WHERE extname = 'postbox')");
    if (!about.ok()) {
      report_.Error("database", "", about.error(), ConnectionRemedy(about.error()));
      return false;
    }
    if (about.null(0, 3)) {
      report_.Error("database", about.text(0, 1), "it does not have the extension",
                    "run CREATE EXTENSION postbox in it, or name another database with PGDATABASE "
                    "or dbname=... in --dsn");
      return false;
    }
    report_.Ok("database", about.text(0, 1),
               "PostgreSQL " + about.text(0, 0) + ", postbox " + about.text(0, 3) + ", as role " +
                   about.text(0, 2));
    CheckClock();
    return TakeFindings();
  }

  void CheckClock() {
    using Seconds = std::chrono::duration<double>;
    const auto now = [] {
      return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
    };
    const double before = now();
    const puller::QueryResult server =
        connection_->Execute("SELECT extract(epoch FROM clock_timestamp())::text");
    const double after = now();
    if (!server.ok()) return;
    const double theirs = std::strtod(server.text(0, 0).c_str(), nullptr);
    const double off = theirs < before ? before - theirs : std::max(0.0, theirs - after);
    if (off <= kClockTolerance) return;
    report_.Warn("clock", "this machine and the server",
                 "their clocks differ by " + std::to_string(std::lround(off)) + " s",
                 "synchronize the clocks of both, for example with chrony");
  }

  // What the server says. False if it does not know how to.
  bool TakeFindings() {
    const puller::QueryResult found = connection_->Execute(
        "SELECT f.check, f.status, f.subject, f.detail, f.remedy FROM postbox.doctor() f");
    if (!found.ok()) {
      const bool old = found.sqlstate() == "42883";
      report_.Error(
          "version", "",
          old ? "the extension in this database is from a release without postbox.doctor()"
              : "postbox.doctor() failed: " + found.error(),
          old ? "run ALTER EXTENSION postbox UPDATE in this database" : "see the server log");
      return old;
    }
    for (int row = 0; row < found.rows(); ++row) {
      report_.Add({found.text(row, 0), found.text(row, 1), found.text(row, 2), found.text(row, 3),
                   found.text(row, 4)});
    }
    return true;
  }

  void ReadConfiguration() {
    place_.endpoint = options_.endpoint;
    place_.project = options_.project;
    std::string error = AskForPlace(connection_.get(), &place_);
    if (error.empty()) error = ReadPublications();
    if (error.empty()) error = ReadSubscriptions();
    if (!error.empty()) {
      report_.Error("database", "", "the configuration cannot be read: " + error,
                    "see the server log");
    }
    if (!place_.endpoint_known) {
      report_.Warn("endpoint", "", "the role may not read postbox.endpoint; the default is used",
                   "pass --endpoint, or run GRANT pg_monitor to the role");
    }
  }

  // The full name, or nothing: then it is reported.
  std::string FullName(const std::string& what, const std::string& subject,
                       const std::string& name) {
    std::string problem =
        what == "topic" ? pubsub::CheckTopicName(name) : pubsub::CheckSubscriptionName(name);
    if (problem.empty() && !pubsub::IsFullResourceName(name)) {
      problem = pubsub::CheckProjectId(place_.project);
    }
    if (!problem.empty()) {
      report_.Error(what, subject, problem,
                    "pass --project, set postbox.project_id, or write the name as projects/...");
      return "";
    }
    return what == "topic" ? pubsub::TopicName(place_.project, name)
                           : pubsub::SubscriptionName(place_.project, name);
  }

  std::string ReadPublications() {
    const puller::QueryResult rows = connection_->Execute(
        "SELECT p.name, p.topic, p.ordering <> 'none', coalesce(p.credential, '') "
        "FROM postbox.publication p ORDER BY p.name");
    if (!rows.ok()) return rows.error();
    for (int row = 0; row < rows.rows(); ++row) {
      const std::string topic = FullName("topic", rows.text(row, 0), rows.text(row, 1));
      if (topic.empty()) continue;
      publications_.push_back(
          {rows.text(row, 0), topic, rows.text(row, 2) == "t", rows.text(row, 3)});
    }
    return "";
  }

  std::string ReadSubscriptions() {
    const puller::QueryResult rows = connection_->Execute(
        "SELECT s.name, s.subscription, s.on_error, s.max_attempts, s.inbox::text, "
        "coalesce(extract(epoch FROM i.retention), 0)::text, "
        "CASE WHEN s.on_error = 'dead_letter_topic' THEN s.dead_letter_topic ELSE '' END, "
        "coalesce(s.credential, '') "
        "FROM postbox.subscription s LEFT JOIN postbox.inbox i ON i.relation = s.inbox "
        "ORDER BY s.name");
    if (!rows.ok()) return rows.error();
    for (int row = 0; row < rows.rows(); ++row) {
      const std::string name = rows.text(row, 0);
      const std::string full = FullName("subscription", name, rows.text(row, 1));
      if (full.empty()) continue;
      subscriptions_.push_back({name, full, rows.text(row, 2), rows.integer(row, 3),
                                rows.text(row, 4), std::strtod(rows.text(row, 5).c_str(), nullptr),
                                rows.text(row, 7)});
      if (rows.text(row, 6).empty()) continue;
      const std::string topic = FullName("topic", name, rows.text(row, 6));
      if (!topic.empty())
        publications_.push_back({name + " (dead letters)", topic, false, rows.text(row, 7)});
    }
    return "";
  }

  // A project that is in use here.
  std::string SomeProject() const {
    const std::string& name =
        publications_.empty() ? subscriptions_.front().subscription : publications_.front().topic;
    constexpr size_t kBegin = std::string_view("projects/").size();
    return name.substr(kBegin, name.find('/', kBegin) - kBegin);
  }

  // False if Pub/Sub cannot be asked.
  bool CheckEndpoint() {
    pubsub::Endpoint endpoint;
    std::string problem;
    if (!pubsub::ParseEndpoint(place_.endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &endpoint,
                               &problem)) {
      report_.Error("endpoint", place_.endpoint, problem,
                    "correct --endpoint, postbox.endpoint or PUBSUB_EMULATOR_HOST");
      return false;
    }
    admin_ = PubSubAdmin::Open(endpoint, place_.quota_project, &problem);
    if (!admin_) {
      report_.Error("credentials", endpoint.address, problem,
                    "set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, or run postbox "
                    "doctor in the environment of the process that has credentials");
      return false;
    }
    const grpc::Status status = admin_->Connect(SomeProject());
    if (!status.ok()) {
      report_.Error(
          "endpoint", endpoint.address,
          std::string(endpoint.plaintext ? "" : "over TLS, ") + "no answer: " + StatusText(status),
          "check postbox.endpoint, the network, DNS and firewalls; http:// is for emulators, any "
          "other endpoint uses TLS");
      return false;
    }
    report_.Ok("endpoint", endpoint.address,
               endpoint.plaintext ? "plain text, no credentials" : "TLS");
    return true;
  }

  void CheckPublication(const PublicationRow& row) {
    pb::Topic topic;
    const grpc::Status status = admin_->GetTopic(row.topic, &topic);
    if (!status.ok()) return CheckCall(status, "topic", row.name, row.topic, &report_);
    CheckTopic(topic, row.name, &report_);
    if (!row.credential.empty()) return LeaveOut(row.name, row.credential);
    CheckHeld(row.topic, {"pubsub.topics.publish"}, "roles/pubsub.publisher", row.name);
  }

  void CheckOneSubscription(const SubscriptionRow& row) {
    pb::Subscription subscription;
    const grpc::Status status = admin_->GetSubscription(row.subscription, &subscription);
    if (!status.ok()) {
      return CheckCall(status, "subscription", row.name, row.subscription, &report_);
    }
    CheckSubscription(subscription, row, publications_, &report_);
    if (!row.credential.empty()) return LeaveOut(row.name, row.credential);
    CheckHeld(row.subscription, {"pubsub.subscriptions.consume"}, "roles/pubsub.subscriber",
              row.name);
  }

  // What this process may do says nothing of another identity.
  void LeaveOut(const std::string& subject, const std::string& credential) {
    report_.Ok("permissions", subject,
               "cannot be checked from here: it has the identity of credential \"" + credential +
                   "\"; see postbox.credential_status");
  }

  void CheckHeld(const std::string& resource, const std::vector<std::string>& wanted,
                 const std::string& role, const std::string& subject) {
    std::vector<std::string> held;
    const grpc::Status status = admin_->TestPermissions(resource, wanted, &held);
    CheckPermissions(status, wanted, held, role, subject, resource, &report_);
  }

  const DoctorOptions& options_;
  Report report_;
  std::unique_ptr<puller::Connection> connection_;
  PubSubPlace place_;
  std::unique_ptr<PubSubAdmin> admin_;
  std::vector<PublicationRow> publications_;
  std::vector<SubscriptionRow> subscriptions_;
};

}  // namespace

int RunDoctor(const DoctorOptions& options) {
  const Report report = Doctor(options).Run();
  const std::string text = options.json ? report.Json() : report.Text();
  std::fwrite(text.data(), 1, text.size(), stdout);
  const std::string worst = report.Worst();
  return worst == "error" || (worst == "warning" && options.strict) ? 1 : 0;
}

}  // namespace postbox::cli
