#include "worker/emulator/server.h"

#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "worker/base/line_queue.h"
#include "worker/emulator/answer_first.h"
#include "worker/emulator/broker/resource_spec.h"
#include "worker/emulator/call_gate.h"
#include "worker/emulator/host_port.h"
#include "worker/emulator/listening_port.h"
#include "worker/emulator/services.h"
#include "worker/emulator/ticker.h"

namespace postbox::emulator {
namespace {

constexpr int kMaxReceiveBytes = 20 * 1024 * 1024;
constexpr int kMaxMetadataBytes = 4 * 1024 * 1024;
// The precision of deadlines and backoffs.
constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr std::chrono::seconds kShutdownGrace{2};

class ServerImpl final : public Server {
 public:
  ServerImpl(BrokerOptions options, absl::Duration delivery_delay)
      : broker_([] { return absl::Now(); }, options),
        gate_(&faults_),
        answer_first_(delivery_delay),
        services_(&broker_, &gate_, &answer_first_) {}

  ~ServerImpl() override {
    port_.Close();
    gate_.Stop();
    broker_.WakeAll();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      server_->Wait();
    }
    ticker_.reset();
  }

  absl::Status Listen(const std::string& host, int port, const TlsOptions& tls) {
    const auto credentials = MakeServerCredentials(tls);
    if (!credentials.ok()) return credentials.status();
    if (auto s = broker_.Recover(); !s.ok()) return s;
    if (tls.administrators) {
      const auto grants = [this](const std::string& resource, const std::string& caller,
                                 const std::string& permission) {
        return broker_.policies()->Allows(resource, caller, permission);
      };
      gate_.Enforce(std::make_unique<AccessControl>(grants, tls.verifier, *tls.administrators));
    }
    // Distributions build abseil with its detection of lock cycles, which each call of gRPC pays
    // for.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
    // Without this, two servers on one port would share the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Clients may send keepalive pings as often as they like.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    const bool encrypted = !tls.certificate_file.empty();
    if (auto s = port_.Open(host, port, encrypted, *credentials, &builder); !s.ok()) return s;
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(answer_first_.MakeInterceptors());
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    services_.Register(&builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_.number() == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", HostPort(host, port),
                       encrypted ? ", or the certificate is not valid" : ""));
    }
    port_.Start();
    ticker_ = std::make_unique<Ticker>(kTick, [this] { broker_.Tick(); });
    return absl::OkStatus();
  }

  int port() const override { return port_.number(); }
  Broker* broker() override { return &broker_; }
  Faults* faults() override { return &faults_; }

 private:
  Faults faults_;
  Broker broker_;
  CallGate gate_;
  AnswerFirst answer_first_;
  Services services_;
  std::unique_ptr<grpc::Server> server_;
  ListeningPort port_;
  std::unique_ptr<Ticker> ticker_;
};

// Sets who may call, and starts the server that issues tokens, if there is to be one: null if not.
absl::StatusOr<std::unique_ptr<AuthServer>> StartAuthentication(const EmulatorOptions& options,
                                                                TlsOptions* tls) {
  std::vector<TrustedAccount> accounts;
  for (const std::string& text : options.accounts) {
    const auto account = ParseTrustedAccount(text);
    if (!account.ok()) return account.status();
    accounts.push_back(*account);
  }
  if (accounts.empty() && !options.auth.port) {
    if (!options.enforce_iam) return nullptr;
    return absl::InvalidArgumentError(
        "--enforce-iam needs the identity of callers: pass --trust or --auth-port");
  }
  if (options.enforce_iam) {
    tls->administrators.emplace(options.administrators.begin(), options.administrators.end());
  }
  const auto now = [] { return absl::Now(); };
  const auto issued = std::make_shared<IssuedTokens>(now);
  const auto verifier = std::make_shared<BearerVerifier>(now, accounts, options.hosts, issued);
  tls->verifier = verifier;
  if (!options.auth.port) return nullptr;
  return AuthServer::Start(options.host, options.project, options.auth, verifier, issued);
}

int Fail(const absl::Status& status) {
  StandardError().Push(absl::StrCat("postbox emulator: ", status.message(), "\n"));
  StandardError().Finish();
  return 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& host, int port,
                                                      BrokerOptions options,
                                                      absl::Duration delivery_delay,
                                                      const TlsOptions& tls) {
  auto server = std::make_unique<ServerImpl>(options, delivery_delay);
  if (auto s = server->Listen(host, port, tls); !s.ok()) return s;
  return server;
}

int RunEmulator(EmulatorOptions options) {
  options.host = WithoutBrackets(options.host);
  // Blocked before any thread is started, so that only the sigwait below receives the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  TlsOptions tls = options.tls;
  auto auth_server = StartAuthentication(options, &tls);
  if (!auth_server.ok()) return Fail(auth_server.status());
  const absl::Duration delay = absl::Milliseconds(options.delivery_delay_ms);
  const auto start = [&](int port) {
    return Server::Start(options.host, port, options.broker, delay, tls);
  };
  auto server = start(options.port.value_or(kUsualPort));
  const bool usual_is_taken = !options.port.has_value() && absl::IsUnavailable(server.status());
  if (usual_is_taken) server = start(0);
  if (!server.ok()) return Fail(server.status());
  if (auto s = CreateResources(options.project, options.topics, options.subscriptions,
                               (*server)->broker());
      !s.ok()) {
    return Fail(s);
  }
  for (const std::string& spec : options.faults) {
    const auto fault = ParseFault(spec);
    if (!fault.ok()) return Fail(fault.status());
    (*server)->faults()->Add(*fault);
  }
  const std::string address = HostPort(options.host, (*server)->port());
  // As lines that nothing has to read: the signal to end is heard all the same.
  std::string text = absl::StrCat("postbox emulator listening on ", address, "\n");
  if (usual_is_taken) {
    absl::StrAppend(&text, "port ", kUsualPort, " is in use, so another one was taken\n");
  }
  // Clients take PUBSUB_EMULATOR_HOST for plain text.
  const bool plain = tls.certificate_file.empty();
  if (plain) absl::StrAppend(&text, "export PUBSUB_EMULATOR_HOST=", address, "\n");
  absl::StrAppend(&text, "export PUBSUB_PROJECT_ID=", options.project, "\n");
  if (*auth_server != nullptr) {
    absl::StrAppend(&text, "tokens at http://", HostPort(options.host, (*auth_server)->port()),
                    "\n");
  }
  absl::StrAppend(&text, "in postgresql.conf: postbox.endpoint = '", plain ? "http" : "https",
                  "://", address, "', postbox.project_id = '", options.project, "'\n");
  StandardOutput().Push(std::move(text));
  int signal = 0;
  sigwait(&signals, &signal);
  StandardOutput().Finish();
  return 0;
}

}  // namespace postbox::emulator
