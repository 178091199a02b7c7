// The executable `postbox`. Its subcommands are
//
//   postbox pull            the companion process: StreamingPull -> inbox_apply_batch -> ack
//   postbox doctor          what is wrong with a set-up, why, and what to do
//   postbox status, top     publications, subscriptions and workers on one screen
//   postbox topics, subscriptions, publish, tail, seek, snapshot
//                           what an operator does with Pub/Sub itself
//   postbox provision       topics, subscriptions, schemas and rights as a file describes them
//   postbox emulator        an embedded Pub/Sub server for development, the demo and tests
//   postbox emulator-fault  adds faults to a running emulator, or prints its counters
//   postbox completion      a script that makes a shell complete all of this
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "worker/base/line_queue.h"
#include "worker/cli/admin_commands.h"
#include "worker/cli/base/grpc_log.h"
#include "worker/cli/base/plain_address.h"
#include "worker/cli/completion/scripts.h"
#include "worker/emulator/fault_client.h"
#include "worker/emulator/server.h"
#include "worker/puller/pull.h"

namespace postbox {
namespace {

constexpr char kVersion[] = "postbox " POSTBOX_VERSION;
constexpr int kUsage = 2;  // the exit status if the command line is wrong
constexpr char kFaultHelp[] =
    "rpc=NAME,code=CODE,count=N[,skip=N][,probability=P][,latency-ms=N][,after-effect]"
    "[,ordering-key=KEY][,attribute=KEY:VALUE][,message=TEXT]"
    "[,action=status|delay|abort-stream|stall|ping-silence|ack-error|big-trailer]"
    "[,error-info=TEXT][,partial][,trailer-bytes=N]";

// NAME=FILE. The file is an absolute path, so a name may have an equals sign, but none before a
// slash.
void TakeCredentialFile(const std::string& text, puller::PullOptions* options) {
  const size_t equals = text.find("=/");
  if (equals == std::string::npos || equals == 0) {
    throw CLI::ValidationError("--credential",
                               "\"" + text + "\" is not NAME=FILE with an absolute path");
  }
  const std::string name = text.substr(0, equals);
  if (!options->credentials.emplace(name, text.substr(equals + 1)).second) {
    throw CLI::ValidationError("--credential", "\"" + name + "\" has two files");
  }
}

CLI::App* AddPull(CLI::App* app, puller::PullOptions* options) {
  CLI::App* pull = app->add_subcommand(
      "pull", "Receive the messages of subscriptions and apply them in the database");
  pull->add_option("--dsn", options->dsn, cli::kDsnHelp);
  pull->add_option("--subscription", options->subscriptions,
                   "Name in postbox.subscription; repeat for several (default: all enabled)");
  pull->add_option("--endpoint", options->endpoint, cli::kEndpointHelp);
  pull->add_option("--project", options->project, cli::kProjectHelp);
  pull->add_option_function<std::vector<std::string>>(
          "--credential",
          [options](const std::vector<std::string>& files) {
            for (const std::string& file : files) TakeCredentialFile(file, options);
          },
          "Absolute path of a file on this machine for a credential that a subscription names, "
          "whatever the database says of it; repeat for several")
      ->type_name("NAME=FILE");
  pull->add_option("--grace-period", options->grace_period_seconds,
                   "Seconds from SIGTERM to the end, whatever does not answer; 2 at least")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
  pull->add_option("--log-format", options->log_format, "Format of the log on standard error")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  pull->footer(
      "It needs one connection to the database for the configuration, one for each subscription, "
      "and more, one for each applier at most (4 by default), while there is work for them. A "
      "pooler must have room for them.\n\n"
      "Example:\n  postbox pull --dsn \"host=db dbname=reader user=reader\" --project my-project");
  return pull;
}

void AddEmulatorTls(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  CLI::Option* certificate = emulator->add_option("--tls-cert", options->tls.certificate_file,
                                                  "Certificate (PEM): serve TLS, not plain text");
  CLI::Option* key =
      emulator->add_option("--tls-key", options->tls.key_file, "Private key (PEM) of --tls-cert");
  certificate->needs(key)->type_name("FILE");
  key->needs(certificate)->type_name("FILE");
  emulator
      ->add_option("--trust", options->accounts,
                   "Service account that may call, and its public key or certificate (PEM); others "
                   "may not; repeat for several. The file is read at each call")
      ->type_name("EMAIL=FILE")
      ->needs(certificate);
  emulator
      ->add_option("--tls-host", options->hosts,
                   "Name of this service in the audience of tokens; repeat for several")
      ->type_name("HOST")
      ->capture_default_str();
}

void AddEmulatorQuotas(CLI::App* emulator, postbox::emulator::PublishRates* rates) {
  const auto add = [emulator](const char* name, int64_t* rate, const char* help) {
    emulator->add_option(name, *rate, help)->type_name("BYTES")->check(CLI::NonNegativeNumber);
  };
  add("--key-throughput", &rates->key,
      "Bytes that one ordering key may publish in a second; Google's limit is 1000000 (default: no "
      "limit)");
  add("--topic-throughput", &rates->topic,
      "Bytes that may be published to one topic in a second (default: no limit)");
  add("--throughput", &rates->all,
      "Bytes that may be published to all topics together in a second (default: no limit)");
}

void AddEmulatorIam(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  CLI::Option* enforce =
      emulator
          ->add_flag("--enforce-iam", options->enforce_iam,
                     "Let callers do only what the IAM policies of topics, subscriptions and "
                     "snapshots give them")
          ->needs("--tls-cert");
  emulator
      ->add_option("--iam-admin", options->administrators,
                   "Account that may do everything, policies included; repeat for several")
      ->type_name("EMAIL")
      ->needs(enforce);
}

void AddEmulatorAuth(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  postbox::emulator::AuthOptions* auth = &options->auth;
  CLI::Option* port = emulator
                          ->add_option("--auth-port", auth->port,
                                       "Serve tokens over HTTP on this port, 0 for a free one: "
                                       "OAuth token endpoint, token exchange, IAM credentials, "
                                       "metadata server. Calls without a token are refused then")
                          ->check(CLI::Range(0, 65535))
                          ->needs("--tls-cert");
  emulator
      ->add_option("--auth-user", auth->users,
                   "User whose refresh token is exchanged for tokens; repeat for several")
      ->type_name("EMAIL=REFRESH_TOKEN")
      ->needs(port);
  emulator
      ->add_option("--auth-provider", auth->providers,
                   "Audience of a workload identity pool, and the public key (PEM) of its identity "
                   "provider; repeat for several")
      ->type_name("AUDIENCE=FILE")
      ->needs(port);
  emulator
      ->add_option("--auth-impersonate", auth->impersonators,
                   "Account or principal that may have tokens of another account; repeat for "
                   "several")
      ->type_name("CALLER=EMAIL")
      ->needs(port);
  emulator
      ->add_option("--auth-metadata", auth->metadata_account,
                   "Account of the machine, which the metadata server has tokens of")
      ->type_name("EMAIL")
      ->needs(port);
  emulator
      ->add_option("--auth-metadata-scope", auth->metadata_scope,
                   "Scopes of the machine, which "
                   "its tokens have whatever is asked for")
      ->type_name("SCOPES")
      ->capture_default_str()
      ->needs(port);
  emulator->add_option("--auth-token-life", auth->token_seconds, "Seconds that a token holds")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600))
      ->needs(port);
}

CLI::App* AddEmulator(CLI::App* app, emulator::EmulatorOptions* options) {
  CLI::App* emulator = app->add_subcommand("emulator", "Serve Pub/Sub until SIGTERM or SIGINT");
  emulator->add_option("--host", options->host, "Address to listen on, or a name of it")
      ->capture_default_str();
  emulator
      ->add_option("--port", options->port,
                   "Port to listen on; 0 takes a free one (default: 8085, or a free one if that is "
                   "in use)")
      ->check(CLI::Range(0, 65535));
  emulator->add_option("--project", options->project, "Project of the topics and subscriptions")
      ->capture_default_str();
  emulator->add_option("--topic", options->topics, "Topic to create; repeat for several")
      ->type_name("NAME");
  emulator
      ->add_option("--subscription", options->subscriptions,
                   "Subscription to create, and its topics; repeat for several")
      ->type_name(
          "NAME=TOPIC[,ordered][,exactly-once][,retain-acked][,ack-deadline=SECONDS]"
          "[,retry=MIN_MS:MAX_MS][,dead-letter=TOPIC:ATTEMPTS][,filter=EXPRESSION]");
  options->broker.auto_create = true;
  emulator->add_flag("--auto-create,!--no-auto-create", options->broker.auto_create,
                     "Create a topic when something is published to it, or a subscription to it is "
                     "created (the default)");
  emulator
      ->add_option("--delivery-delay", options->delivery_delay_ms,
                   "Milliseconds between the answer to a Publish and the delivery of its messages, "
                   "so that clients know an id before its message comes")
      ->capture_default_str()
      ->check(CLI::Range(0, 900));
  emulator->add_flag("--deliver-twice", options->broker.deliver_twice,
                     "Deliver every message once more after its first acknowledgement");
  emulator->add_flag("--release-on-disconnect", options->broker.release_on_disconnect,
                     "Redeliver the messages of a stream when it ends, not at the ack deadline");
  emulator
      ->add_option("--data-dir", options->broker.data_directory,
                   "Directory that keeps topics, subscriptions, snapshots, schemas and messages "
                   "across restarts; it is made if there is none (default: all is in memory)")
      ->type_name("DIR");
  AddEmulatorQuotas(emulator, &options->broker.publish_rates);
  AddEmulatorTls(emulator, options);
  AddEmulatorAuth(emulator, options);
  AddEmulatorIam(emulator, options);
  emulator->add_option("--fault", options->faults, "Fault to start with; repeat for several")
      ->type_name(kFaultHelp);
  emulator->footer(
      "Example:\n  postbox emulator --subscription "
      "catalog.video.events.catalog-reader=catalog.video.events,ordered");
  return emulator;
}

CLI::App* AddEmulatorFault(CLI::App* app, emulator::FaultClientOptions* options) {
  CLI::App* fault =
      app->add_subcommand("emulator-fault", "Add faults to a running emulator, or clear them");
  fault
      ->add_option_function<std::string>(
          "--endpoint",
          [options](const std::string& text) {
            std::string problem;
            if (!cli::PlainAddress(text, &options->address, &problem)) {
              throw CLI::ValidationError("--endpoint", problem);
            }
          },
          "HOST:PORT of the emulator, or http://HOST:PORT")
      ->required();
  fault->add_option("fault", options->specs, "Faults to add")->type_name(kFaultHelp);
  fault->add_flag("--clear", options->clear, "Clear all faults first");
  fault->add_flag("--stats", options->stats, "Print the emulator's counters as JSON");
  fault->footer(
      "Example:\n  postbox emulator-fault --endpoint 127.0.0.1:8085 "
      "rpc=Publish,code=UNAVAILABLE,count=3");
  return fault;
}

const CLI::App* AddCompletion(CLI::App* app, std::string* shell) {
  CLI::App* completion = app->add_subcommand(
      "completion", "Print a script that makes a shell complete the command line of postbox");
  completion->add_option("SHELL", *shell, "Shell that the script is for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "The packages install these scripts.\n\n"
      "Example:\n  postbox completion bash > "
      "~/.local/share/bash-completion/completions/postbox\n"
      "  postbox completion zsh > /usr/local/share/zsh/site-functions/_postbox\n"
      "  postbox completion fish > ~/.config/fish/completions/postbox.fish");
  return completion;
}

int PrintCompletion(const CLI::App& app, const std::string& shell) {
  const cli::CommandWords words = cli::WordsOf(app);
  const std::string script = shell == "bash"  ? cli::BashScript(words)
                             : shell == "zsh" ? cli::ZshScript(words)
                                              : cli::FishScript(words);
  if (std::fputs(script.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  std::perror("postbox completion");
  return 1;
}

// CLI11 fills the lines of a footer since 2.5, those of examples too.
template <class Formatter>
void KeepLinesOfFooters(Formatter* formatter) {
  if constexpr (requires { formatter->enable_footer_formatting(false); }) {
    formatter->enable_footer_formatting(false);
  }
}

int Run(int argc, char** argv) {
  CLI::App app("Transactional outbox and inbox between PostgreSQL and Pub/Sub", "postbox");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  KeepLinesOfFooters(app.get_formatter().get());  // subcommands take it over

  puller::PullOptions pull_options;
  emulator::EmulatorOptions emulator_options;
  emulator::FaultClientOptions fault_options;
  const CLI::App* pull = AddPull(&app, &pull_options);
  const CLI::App* emulator = AddEmulator(&app, &emulator_options);
  AddEmulatorFault(&app, &fault_options);
  const std::vector<cli::Command> commands = cli::AddAdminCommands(&app);
  std::string shell;
  const CLI::App* completion = AddCompletion(&app, &shell);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  if (*completion) return PrintCompletion(app, shell);
  cli::TakeGrpcLog();
  if (*pull) return puller::RunPull(pull_options);
  for (const cli::Command& command : commands) {
    if (*command.app) return command.run();
  }
  if (*emulator) return emulator::RunEmulator(emulator_options);
  return emulator::RunFaultClient(fault_options);
}

}  // namespace
}  // namespace postbox

// Errors are reported where they occur. An exception that arrives here is a defect or a lack of
// memory.
int main(int argc, char** argv) {
  try {
    return postbox::Run(argc, argv);
  } catch (const std::exception& error) {
    postbox::StandardError().Push(std::string("postbox: internal error: ") + error.what() + "\n");
  } catch (...) {
    postbox::StandardError().Push("postbox: internal error\n");
  }
  postbox::StandardError().Finish();
  return 1;
}
