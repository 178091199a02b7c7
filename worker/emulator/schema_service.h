// google.pubsub.v1.SchemaService over a Broker.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_SERVICE_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_SERVICE_H_

#include "google/pubsub/v1/schema.grpc.pb.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class SchemaService final : public google::pubsub::v1::SchemaService::Service {
 public:
  SchemaService(Broker* broker, CallGate* gate) : broker_(broker), gate_(gate) {}

  grpc::Status CreateSchema(grpc::ServerContext* context,
                            const google::pubsub::v1::CreateSchemaRequest* request,
                            google::pubsub::v1::Schema* response) override;
  grpc::Status GetSchema(grpc::ServerContext* context,
                         const google::pubsub::v1::GetSchemaRequest* request,
                         google::pubsub::v1::Schema* response) override;
  grpc::Status ListSchemas(grpc::ServerContext* context,
                           const google::pubsub::v1::ListSchemasRequest* request,
                           google::pubsub::v1::ListSchemasResponse* response) override;
  grpc::Status ListSchemaRevisions(
      grpc::ServerContext* context, const google::pubsub::v1::ListSchemaRevisionsRequest* request,
      google::pubsub::v1::ListSchemaRevisionsResponse* response) override;
  grpc::Status CommitSchema(grpc::ServerContext* context,
                            const google::pubsub::v1::CommitSchemaRequest* request,
                            google::pubsub::v1::Schema* response) override;
  grpc::Status RollbackSchema(grpc::ServerContext* context,
                              const google::pubsub::v1::RollbackSchemaRequest* request,
                              google::pubsub::v1::Schema* response) override;
  grpc::Status DeleteSchemaRevision(grpc::ServerContext* context,
                                    const google::pubsub::v1::DeleteSchemaRevisionRequest* request,
                                    google::pubsub::v1::Schema* response) override;
  grpc::Status DeleteSchema(grpc::ServerContext* context,
                            const google::pubsub::v1::DeleteSchemaRequest* request,
                            google::protobuf::Empty* response) override;
  grpc::Status ValidateSchema(grpc::ServerContext* context,
                              const google::pubsub::v1::ValidateSchemaRequest* request,
                              google::pubsub::v1::ValidateSchemaResponse* response) override;
  grpc::Status ValidateMessage(grpc::ServerContext* context,
                               const google::pubsub::v1::ValidateMessageRequest* request,
                               google::pubsub::v1::ValidateMessageResponse* response) override;

 private:
  Broker* const broker_;
  CallGate* const gate_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_SERVICE_H_
