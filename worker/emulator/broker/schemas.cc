#include "worker/emulator/broker/schemas.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/status.h"
#include "worker/emulator/rules/validation.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

absl::Status NoSchema(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("schema not found (schema=", name, ")"));
}

absl::Status NoRevision(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("schema revision not found (revision_id=", id, ")"));
}

// SCHEMA or SCHEMA@REVISION.
struct RevisionName {
  std::string schema;
  std::string revision;
};

absl::StatusOr<RevisionName> ParseName(const std::string& name) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('@', 1));
  if (auto s = CheckName(parts.first, "schemas"); !s.ok()) return s;
  return RevisionName{parts.first, parts.second};
}

pb::Schema View(const pb::Schema& schema, pb::SchemaView view, pb::SchemaView usual) {
  pb::Schema shown = schema;
  if ((view == pb::SCHEMA_VIEW_UNSPECIFIED ? usual : view) == pb::BASIC) shown.clear_definition();
  return shown;
}

absl::Status CheckEncoding(pb::Encoding encoding) {
  if (encoding == pb::JSON || encoding == pb::BINARY) return absl::OkStatus();
  return absl::InvalidArgumentError("an encoding is needed, JSON or BINARY");
}

std::string NewRevisionId() {
  std::random_device random;
  return absl::StrCat(absl::Hex(static_cast<uint32_t>(random()), absl::kZeroPad8));
}

// In the words of the service.
absl::Status NoMatch(const pb::Schema& last, pb::Encoding encoding, absl::string_view why) {
  const std::string reason =
      absl::StrCat("INVALID_", pb::Encoding_Name(encoding), "_",
                   last.type() == pb::Schema::AVRO ? "AVRO" : "PROTO", "_MESSAGE");
  const std::string info = absl::StrCat(
      "Could not validate message with any schema revision for schema: ", last.name(),
      ", last checked revision: revision_id=", last.revision_id(), " failed with status: ", why);
  return WithErrorInfo(absl::InvalidArgumentError(absl::StrCat(
                           "Invalid data in message: Message failed schema validation. ", info)),
                       reason,
                       {{"message", "Message failed schema validation"}, {"revisionInfo", info}});
}

}  // namespace

absl::StatusOr<Schemas::Revisions*> Schemas::Find(const std::string& name) {
  const auto found = schemas_.find(name);
  if (found == schemas_.end()) return NoSchema(name);
  return &found->second;
}

absl::StatusOr<size_t> Schemas::IndexOf(const Revisions& revisions, const std::string& id) {
  if (id.empty()) return revisions.size() - 1;
  for (size_t i = 0; i < revisions.size(); ++i) {
    if (revisions[i].proto.revision_id() == id) return i;
  }
  return NoRevision(id);
}

absl::StatusOr<pb::Schema> Schemas::Append(const pb::Schema& schema,
                                           std::shared_ptr<const SchemaDefinition> definition,
                                           Revisions* revisions) {
  if (revisions->size() >= kMaxSchemaRevisions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("schema ", schema.name(), " has ", kMaxSchemaRevisions,
                     " revisions already, which is the most: delete one of them first"));
  }
  Revision revision{schema, std::move(definition)};
  do {
    revision.proto.set_revision_id(NewRevisionId());
  } while (!revisions->empty() && IndexOf(*revisions, revision.proto.revision_id()).ok());
  SetTimestamp(clock_(), revision.proto.mutable_revision_create_time());
  revisions->push_back(std::move(revision));
  Changed(schema.name());
  return revisions->back().proto;
}

void Schemas::Changed(const std::string& name) {
  if (!observer_) return;
  pb::ListSchemaRevisionsResponse all;
  if (const auto found = schemas_.find(name); found != schemas_.end()) {
    for (const Revision& revision : found->second) *all.add_schemas() = revision.proto;
  }
  observer_(name, all);
}

absl::Status Schemas::Recover(const pb::ListSchemaRevisionsResponse& revisions) {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const pb::Schema& schema : revisions.schemas()) {
    auto definition = SchemaDefinition::Parse(schema);
    if (!definition.ok()) return definition.status();
    schemas_[schema.name()].push_back({schema, *std::move(definition)});
  }
  return absl::OkStatus();
}

absl::StatusOr<pb::Schema> Schemas::Create(const pb::CreateSchemaRequest& request) {
  if (auto s = CheckProject(request.parent()); !s.ok()) return s;
  pb::Schema schema = request.schema();
  const std::string prefix = absl::StrCat(request.parent(), "/schemas/");
  schema.set_name(prefix + request.schema_id());
  if (auto s = CheckName(schema.name(), "schemas"); !s.ok()) return s;
  auto definition = SchemaDefinition::Parse(schema);
  if (!definition.ok()) return definition.status();
  const std::lock_guard<std::mutex> lock(mu_);
  if (schemas_.contains(schema.name())) {
    return absl::AlreadyExistsError(
        absl::StrCat("schema already exists (schema=", schema.name(), ")"));
  }
  const auto in_project = std::count_if(schemas_.begin(), schemas_.end(), [&](const auto& item) {
    return absl::StartsWith(item.first, prefix);
  });
  if (in_project >= kMaxSchemas) {
    return absl::ResourceExhaustedError(
        absl::StrCat(request.parent(), " has ", in_project, " schemas, which is the most"));
  }
  return Append(schema, *std::move(definition), &schemas_[schema.name()]);
}

absl::StatusOr<pb::Schema> Schemas::Get(const pb::GetSchemaRequest& request) {
  const auto name = ParseName(request.name());
  if (!name.ok()) return name.status();
  const std::lock_guard<std::mutex> lock(mu_);
  const auto revisions = Find(name->schema);
  if (!revisions.ok()) return revisions.status();
  const auto index = IndexOf(**revisions, name->revision);
  if (!index.ok()) return index.status();
  return View((**revisions)[*index].proto, request.view(), pb::FULL);
}

absl::StatusOr<pb::ListSchemasResponse> Schemas::List(const pb::ListSchemasRequest& request) {
  if (auto s = CheckProject(request.parent()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "schemas"); !s.ok()) return s;
  pb::ListSchemasResponse response;
  const std::string prefix = absl::StrCat(request.parent(), "/schemas/");
  const std::lock_guard<std::mutex> lock(mu_);
  response.set_next_page_token(Page(
      schemas_, request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) {
        *response.add_schemas() = View(item.second.back().proto, request.view(), pb::BASIC);
      }));
  return response;
}

absl::StatusOr<pb::ListSchemaRevisionsResponse> Schemas::ListRevisions(
    const pb::ListSchemaRevisionsRequest& request) {
  if (auto s = CheckName(request.name(), "schemas"); !s.ok()) return s;
  if (request.page_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size must not be negative: ", request.page_size()));
  }
  pb::ListSchemaRevisionsResponse response;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = Find(request.name());
  if (!found.ok()) return found.status();
  const Revisions& revisions = **found;
  size_t next = 0;
  if (!request.page_token().empty()) {
    const auto last = IndexOf(revisions, request.page_token());
    if (!last.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("invalid page_token \"", request.page_token(),
                                                     "\": it must be a next_page_token"));
    }
    next = *last + 1;
  }
  const size_t most =
      request.page_size() > 0 ? static_cast<size_t>(request.page_size()) : kMaxSchemaRevisions;
  for (const size_t end = std::min(revisions.size(), next + most); next < end; ++next) {
    *response.add_schemas() = View(revisions[next].proto, request.view(), pb::BASIC);
  }
  if (next < revisions.size()) {
    response.set_next_page_token(revisions[next - 1].proto.revision_id());
  }
  return response;
}

absl::StatusOr<pb::Schema> Schemas::Commit(const pb::CommitSchemaRequest& request) {
  if (auto s = CheckName(request.name(), "schemas"); !s.ok()) return s;
  pb::Schema schema = request.schema();
  if (!schema.name().empty() && schema.name() != request.name()) {
    return absl::InvalidArgumentError("schema.name must be the name of the schema, or be left out");
  }
  schema.set_name(request.name());
  auto definition = SchemaDefinition::Parse(schema);
  if (!definition.ok()) return definition.status();
  const std::lock_guard<std::mutex> lock(mu_);
  const auto revisions = Find(request.name());
  if (!revisions.ok()) return revisions.status();
  if (auto s = (*definition)->CheckRevises(*(*revisions)->back().definition); !s.ok()) return s;
  return Append(schema, *std::move(definition), *revisions);
}

absl::StatusOr<pb::Schema> Schemas::Rollback(const pb::RollbackSchemaRequest& request) {
  if (auto s = CheckName(request.name(), "schemas"); !s.ok()) return s;
  if (request.revision_id().empty()) {
    return absl::InvalidArgumentError("revision_id must name the revision to roll back to");
  }
  const std::lock_guard<std::mutex> lock(mu_);
  const auto revisions = Find(request.name());
  if (!revisions.ok()) return revisions.status();
  const auto index = IndexOf(**revisions, request.revision_id());
  if (!index.ok()) return index.status();
  const Revision old = (**revisions)[*index];
  return Append(old.proto, old.definition, *revisions);
}

absl::StatusOr<pb::Schema> Schemas::DeleteRevision(const pb::DeleteSchemaRevisionRequest& request) {
  const auto name = ParseName(request.name());
  if (!name.ok()) return name.status();
  if (name->revision.empty()) {
    return absl::InvalidArgumentError("the name must be that of a revision: SCHEMA@REVISION");
  }
  const std::lock_guard<std::mutex> lock(mu_);
  const auto revisions = Find(name->schema);
  if (!revisions.ok()) return revisions.status();
  const auto index = IndexOf(**revisions, name->revision);
  if (!index.ok()) return index.status();
  if ((*revisions)->size() == 1) {
    return absl::InvalidArgumentError(
        "the last revision of a schema cannot be deleted: delete the schema");
  }
  const auto at = (*revisions)->begin() + static_cast<std::ptrdiff_t>(*index);
  const pb::Schema deleted = at->proto;
  (*revisions)->erase(at);
  Changed(name->schema);
  return deleted;
}

absl::Status Schemas::Delete(const std::string& name) {
  if (auto s = CheckName(name, "schemas"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  if (schemas_.erase(name) == 0) return NoSchema(name);
  Changed(name);
  return absl::OkStatus();
}

absl::Status Schemas::Validate(const pb::ValidateSchemaRequest& request) {
  if (auto s = CheckProject(request.parent()); !s.ok()) return s;
  return SchemaDefinition::Parse(request.schema()).status();
}

absl::Status Schemas::ValidateMessage(const pb::ValidateMessageRequest& request) {
  if (auto s = CheckProject(request.parent()); !s.ok()) return s;
  if (auto s = CheckEncoding(request.encoding()); !s.ok()) return s;
  std::shared_ptr<const SchemaDefinition> definition;
  if (request.has_schema()) {
    auto parsed = SchemaDefinition::Parse(request.schema());
    if (!parsed.ok()) return parsed.status();
    definition = *std::move(parsed);
  } else {
    const auto name = ParseName(request.name());
    if (!name.ok()) return name.status();
    const std::lock_guard<std::mutex> lock(mu_);
    const auto revisions = Find(name->schema);
    if (!revisions.ok()) return revisions.status();
    const auto index = IndexOf(**revisions, name->revision);
    if (!index.ok()) return index.status();
    definition = (**revisions)[*index].definition;
  }
  const absl::Status status = definition->CheckMessage(request.message(), request.encoding());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("the message does not follow the schema: ", status.message()));
}

absl::StatusOr<Schemas::Revisions> Schemas::AllowedBy(const pb::SchemaSettings& settings) {
  if (settings.schema() == kDeletedSchema) {
    return absl::NotFoundError("the schema of the topic was deleted");
  }
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = Find(settings.schema());
  if (!found.ok()) return found.status();
  const Revisions& all = **found;
  const auto last = IndexOf(all, settings.last_revision_id());
  if (!last.ok()) return last.status();
  size_t first = 0;
  if (!settings.first_revision_id().empty()) {
    const auto index = IndexOf(all, settings.first_revision_id());
    if (!index.ok()) return index.status();
    first = *index;
  }
  if (first > *last) {
    return absl::InvalidArgumentError("first_revision_id must not be newer than last_revision_id");
  }
  Revisions allowed(all.begin() + static_cast<std::ptrdiff_t>(first),
                    all.begin() + static_cast<std::ptrdiff_t>(*last) + 1);
  std::reverse(allowed.begin(), allowed.end());
  return allowed;
}

absl::Status Schemas::CheckSettings(const pb::SchemaSettings& settings) {
  if (auto s = CheckName(settings.schema(), "schemas"); !s.ok()) return s;
  if (auto s = CheckEncoding(settings.encoding()); !s.ok()) return s;
  return AllowedBy(settings).status();
}

absl::Status Schemas::CheckAndMark(
    const pb::SchemaSettings& settings,
    google::protobuf::RepeatedPtrField<pb::PubsubMessage>* messages) {
  const auto revisions = AllowedBy(settings);
  if (!revisions.ok()) return revisions.status();
  for (pb::PubsubMessage& message : *messages) {
    const pb::Schema* followed = nullptr;
    absl::Status last;
    for (const Revision& revision : *revisions) {
      last = revision.definition->CheckMessage(message.data(), settings.encoding());
      if (!last.ok()) continue;
      followed = &revision.proto;
      break;
    }
    if (followed == nullptr) {
      return NoMatch(revisions->back().proto, settings.encoding(), last.message());
    }
    auto& attributes = *message.mutable_attributes();
    attributes["googclient_schemaname"] = followed->name();
    attributes["googclient_schemaencoding"] = pb::Encoding_Name(settings.encoding());
    attributes["googclient_schemarevisionid"] = followed->revision_id();
  }
  return absl::OkStatus();
}

}  // namespace postbox::emulator
