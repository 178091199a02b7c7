#include "worker/emulator/schema_service.h"

#include "worker/emulator/respond.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

grpc::Status SchemaService::CreateSchema(grpc::ServerContext* context,
                                         const pb::CreateSchemaRequest* request,
                                         pb::Schema* response) {
  return gate_->Run(context, "CreateSchema", *request,
                    [&] { return Respond(broker_->schemas()->Create(*request), response); });
}

grpc::Status SchemaService::GetSchema(grpc::ServerContext* context,
                                      const pb::GetSchemaRequest* request, pb::Schema* response) {
  return gate_->Run(context, "GetSchema", *request,
                    [&] { return Respond(broker_->schemas()->Get(*request), response); });
}

grpc::Status SchemaService::ListSchemas(grpc::ServerContext* context,
                                        const pb::ListSchemasRequest* request,
                                        pb::ListSchemasResponse* response) {
  return gate_->Run(context, "ListSchemas", *request,
                    [&] { return Respond(broker_->schemas()->List(*request), response); });
}

grpc::Status SchemaService::ListSchemaRevisions(grpc::ServerContext* context,
                                                const pb::ListSchemaRevisionsRequest* request,
                                                pb::ListSchemaRevisionsResponse* response) {
  return gate_->Run(context, "ListSchemaRevisions", *request,
                    [&] { return Respond(broker_->schemas()->ListRevisions(*request), response); });
}

grpc::Status SchemaService::CommitSchema(grpc::ServerContext* context,
                                         const pb::CommitSchemaRequest* request,
                                         pb::Schema* response) {
  return gate_->Run(context, "CommitSchema", *request,
                    [&] { return Respond(broker_->schemas()->Commit(*request), response); });
}

grpc::Status SchemaService::RollbackSchema(grpc::ServerContext* context,
                                           const pb::RollbackSchemaRequest* request,
                                           pb::Schema* response) {
  return gate_->Run(context, "RollbackSchema", *request,
                    [&] { return Respond(broker_->schemas()->Rollback(*request), response); });
}

grpc::Status SchemaService::DeleteSchemaRevision(grpc::ServerContext* context,
                                                 const pb::DeleteSchemaRevisionRequest* request,
                                                 pb::Schema* response) {
  return gate_->Run(context, "DeleteSchemaRevision", *request, [&] {
    return Respond(broker_->schemas()->DeleteRevision(*request), response);
  });
}

grpc::Status SchemaService::DeleteSchema(grpc::ServerContext* context,
                                         const pb::DeleteSchemaRequest* request,
                                         google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "DeleteSchema", *request,
                    [&] { return broker_->topics()->DeleteSchema(request->name()); });
}

grpc::Status SchemaService::ValidateSchema(grpc::ServerContext* context,
                                           const pb::ValidateSchemaRequest* request,
                                           pb::ValidateSchemaResponse* /*response*/) {
  return gate_->Run(context, "ValidateSchema", *request,
                    [&] { return Schemas::Validate(*request); });
}

grpc::Status SchemaService::ValidateMessage(grpc::ServerContext* context,
                                            const pb::ValidateMessageRequest* request,
                                            pb::ValidateMessageResponse* /*response*/) {
  return gate_->Run(context, "ValidateMessage", *request,
                    [&] { return broker_->schemas()->ValidateMessage(*request); });
}

}  // namespace postbox::emulator
