// Schemas and their revisions, and the check of messages against them. Errors are those of the
// service. Safe for several threads: definitions are compiled, and messages checked, without the
// mutex.
//
// The revisions of a schema are in the order of their creation. A revision that was deleted has no
// place in it any more: a topic that names it as its first or last one refuses every message.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_SCHEMAS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_SCHEMAS_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "worker/emulator/broker/clock.h"
#include "worker/emulator/schema/schema_definition.h"

namespace postbox::emulator {

// What a topic has in the place of its schema's name once that is deleted.
inline constexpr char kDeletedSchema[] = "_deleted-schema_";

class Schemas {
 public:
  explicit Schemas(Clock clock) : clock_(std::move(clock)) {}
  Schemas(const Schemas&) = delete;
  Schemas& operator=(const Schemas&) = delete;

  absl::StatusOr<google::pubsub::v1::Schema> Create(
      const google::pubsub::v1::CreateSchemaRequest& request);
  absl::StatusOr<google::pubsub::v1::Schema> Get(
      const google::pubsub::v1::GetSchemaRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSchemasResponse> List(
      const google::pubsub::v1::ListSchemasRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSchemaRevisionsResponse> ListRevisions(
      const google::pubsub::v1::ListSchemaRevisionsRequest& request);
  absl::StatusOr<google::pubsub::v1::Schema> Commit(
      const google::pubsub::v1::CommitSchemaRequest& request);
  absl::StatusOr<google::pubsub::v1::Schema> Rollback(
      const google::pubsub::v1::RollbackSchemaRequest& request);
  // Returns what it has deleted. The last revision of a schema cannot be deleted.
  absl::StatusOr<google::pubsub::v1::Schema> DeleteRevision(
      const google::pubsub::v1::DeleteSchemaRevisionRequest& request);
  // Topics that have it are the caller's.
  absl::Status Delete(const std::string& name);

  static absl::Status Validate(const google::pubsub::v1::ValidateSchemaRequest& request);
  absl::Status ValidateMessage(const google::pubsub::v1::ValidateMessageRequest& request);

  // Called with each schema that was changed, while it cannot change again; without revisions it is
  // gone. To be set before there are calls.
  using Observer = std::function<void(
      const std::string& name, const google::pubsub::v1::ListSchemaRevisionsResponse& revisions)>;
  void WhenChanged(Observer observer) { observer_ = std::move(observer); }
  // Adds a schema as it was before a restart, with all its revisions.
  absl::Status Recover(const google::pubsub::v1::ListSchemaRevisionsResponse& revisions);

  // Whether a topic may have these settings.
  absl::Status CheckSettings(const google::pubsub::v1::SchemaSettings& settings);
  // Checks the messages of a topic that has these settings against the revisions that it allows,
  // the newest first, and gives each the attributes that name the one it follows.
  absl::Status CheckAndMark(
      const google::pubsub::v1::SchemaSettings& settings,
      google::protobuf::RepeatedPtrField<google::pubsub::v1::PubsubMessage>* messages);

 private:
  struct Revision {
    google::pubsub::v1::Schema proto;
    std::shared_ptr<const SchemaDefinition> definition;
  };
  using Revisions = std::vector<Revision>;

  absl::StatusOr<Revisions*> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The index of a revision of a schema; an empty id means the newest.
  static absl::StatusOr<size_t> IndexOf(const Revisions& revisions, const std::string& id);
  absl::StatusOr<google::pubsub::v1::Schema> Append(
      const google::pubsub::v1::Schema& schema, std::shared_ptr<const SchemaDefinition> definition,
      Revisions* revisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those that a topic allows, the newest first.
  absl::StatusOr<Revisions> AllowedBy(const google::pubsub::v1::SchemaSettings& settings);

  // Tells the observer.
  void Changed(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock clock_;
  Observer observer_;
  std::mutex mu_;
  std::map<std::string, Revisions> schemas_ ABSL_GUARDED_BY(mu_);  // none is empty
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_SCHEMAS_H_
