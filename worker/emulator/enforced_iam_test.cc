// The emulator over TLS, with callers whose rights are enforced.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "google/iam/v1/iam_policy.grpc.pb.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "worker/emulator/broker/test_names.h"
#include "worker/emulator/server.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
namespace iam = google::iam::v1;

constexpr char kSubscription[] = "projects/p/subscriptions/reader";
constexpr char kAdmin[] = "admin@p";
constexpr char kWriter[] = "writer@p";
constexpr char kScope[] = "https://www.googleapis.com/auth/pubsub";

// Writes a certificate for localhost and its key.
void WriteCertificate(const std::string& certificate_file, const std::string& key_file) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* host =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
  X509_add_ext(certificate, host, -1);
  X509_sign(certificate, key, EVP_sha256());
  FILE* file = fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, certificate);
  fclose(file);
  file = fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  fclose(file);
  X509_EXTENSION_free(host);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

class EnforcedIamTest : public testing::Test {
 protected:
  EnforcedIamTest() {
    char name[] = "/tmp/postbox-iam-XXXXXX";
    directory_ = mkdtemp(name);
    TlsOptions tls{directory_ + "/cert", directory_ + "/key", nullptr,
                   std::set<std::string>{kAdmin}};
    WriteCertificate(tls.certificate_file, tls.key_file);
    const auto now = [] { return absl::Now(); };
    tls.verifier = std::make_shared<BearerVerifier>(now, std::vector<TrustedAccount>{},
                                                    std::vector<std::string>{"localhost"}, tokens_);
    auto server = Server::Start("127.0.0.1", 0, {}, absl::ZeroDuration(), tls);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    std::ifstream file(tls.certificate_file);
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
    channel_ = grpc::CreateChannel("localhost:" + std::to_string(server_->port()),
                                   grpc::SslCredentials(ssl));
    publisher_ = pb::Publisher::NewStub(channel_);
    subscriber_ = pb::Subscriber::NewStub(channel_);
    policies_ = iam::IAMPolicy::NewStub(channel_);
    pb::Topic topic;
    topic.set_name(kOrders);
    EXPECT_TRUE(server_->broker()->topics()->Create(topic).ok());
    pb::Subscription subscription;
    subscription.set_name(kSubscription);
    subscription.set_topic(kOrders);
    EXPECT_TRUE(server_->broker()->subscriptions()->Create(subscription).ok());
  }
  ~EnforcedIamTest() override {
    unlink((directory_ + "/cert").c_str());
    unlink((directory_ + "/key").c_str());
    rmdir(directory_.c_str());
  }

  // A context of a call that this account makes.
  std::unique_ptr<grpc::ClientContext> As(const std::string& account) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (account.empty()) return context;
    context->AddMetadata("authorization",
                         "Bearer " + tokens_->Issue(account, kScope, absl::Hours(1)));
    return context;
  }

  grpc::Status Publish(const std::string& account) {
    pb::PublishRequest request;
    request.set_topic(kOrders);
    request.add_messages()->set_data("x");
    pb::PublishResponse response;
    return publisher_->Publish(As(account).get(), request, &response);
  }

  grpc::Status Give(const std::string& account, const char* resource, const char* role) {
    iam::SetIamPolicyRequest request;
    request.set_resource(resource);
    auto* binding = request.mutable_policy()->add_bindings();
    binding->set_role(role);
    binding->add_members(std::string("serviceAccount:") + kWriter);
    iam::Policy policy;
    return policies_->SetIamPolicy(As(account).get(), request, &policy);
  }

  std::string directory_;
  const std::shared_ptr<IssuedTokens> tokens_ =
      std::make_shared<IssuedTokens>([] { return absl::Now(); });
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Publisher::Stub> publisher_;
  std::unique_ptr<pb::Subscriber::Stub> subscriber_;
  std::unique_ptr<iam::IAMPolicy::Stub> policies_;
};

TEST_F(EnforcedIamTest, WithoutATokenNobodyMayDoAnything) {
  EXPECT_EQ(Publish("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(EnforcedIamTest, ACallerMayDoWhatThePolicyGivesUntilItIsTaken) {
  const grpc::Status refused = Publish(kWriter);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(), "User not authorized to perform this action.");
  EXPECT_TRUE(Give(kAdmin, kOrders, "roles/pubsub.publisher").ok());
  EXPECT_TRUE(Publish(kWriter).ok());
  EXPECT_EQ(Publish("other@p").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Give(kAdmin, kOrders, "roles/pubsub.viewer").ok());
  EXPECT_EQ(Publish(kWriter).error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(EnforcedIamTest, NobodyGivesRightsToItself) {
  EXPECT_EQ(Give(kWriter, kOrders, "roles/pubsub.publisher").error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(EnforcedIamTest, AStreamNeedsTheRightOnItsSubscription) {
  const auto open = [this] {
    auto context = As(kWriter);
    auto stream = subscriber_->StreamingPull(context.get());
    pb::StreamingPullRequest request;
    request.set_subscription(kSubscription);
    request.set_stream_ack_deadline_seconds(60);
    stream->Write(request);
    pb::StreamingPullResponse response;
    const bool answered = stream->Read(&response);
    // A call that is cancelled does not say any more how it has ended.
    if (answered) context->TryCancel();
    const grpc::Status status = stream->Finish();
    return answered ? grpc::Status::OK : status;
  };
  EXPECT_EQ(open().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Give(kAdmin, kSubscription, "roles/pubsub.subscriber").ok());
  EXPECT_TRUE(open().ok());
}

TEST_F(EnforcedIamTest, TestIamPermissionsAnswersForTheCaller) {
  EXPECT_TRUE(Give(kAdmin, kOrders, "roles/pubsub.publisher").ok());
  const auto held = [this](const char* account) {
    iam::TestIamPermissionsRequest request;
    request.set_resource(kOrders);
    request.add_permissions("pubsub.topics.publish");
    request.add_permissions("pubsub.topics.delete");
    iam::TestIamPermissionsResponse response;
    EXPECT_TRUE(policies_->TestIamPermissions(As(account).get(), request, &response).ok());
    return std::vector<std::string>(response.permissions().begin(), response.permissions().end());
  };
  EXPECT_EQ(held(kWriter), std::vector<std::string>{"pubsub.topics.publish"});
  EXPECT_EQ(held("other@p"), std::vector<std::string>());
  EXPECT_EQ(held(kAdmin).size(), 2U);
}

}  // namespace
}  // namespace postbox::emulator
