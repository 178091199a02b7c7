// The executable `postbox`. Its subcommands are
//
//   postbox pull            the companion process: StreamingPull -> inbox_apply_batch -> ack
//   postbox doctor          what is wrong with a set-up, why, and what to do
//   postbox status, top     publications, subscriptions and workers on one screen
//   postbox metrics         the metrics of a database, for Prometheus
//   postbox topics, subscriptions, publish, tail, seek, snapshot
//                           what an operator does with Pub/Sub itself
//   postbox provision       topics, subscriptions, schemas and rights as a file describes them
//   postbox console         a page for browsers: what Postbox does, and actions on it
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
#include "worker/cli/rebuild/rebuild.h"
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
constexpr char kEmulatorFooter[] =
    "Options of --subscription:\n"
    "  ordered                     messages of one ordering key are delivered in order\n"
    "  exactly-once                exactly-once delivery\n"
    "  retain-acked                acknowledged messages are kept, so that a seek can deliver them "
    "again\n"
    "  ack-deadline=SECONDS        10 to 600 (default: 10)\n"
    "  retry=MIN_MS:MAX_MS         redelivery backoff in milliseconds, 0 to 600000 (default: "
    "none)\n"
    "  dead-letter=TOPIC:ATTEMPTS  topic for messages after this many deliveries, 5 to 100\n"
    "  filter=EXPRESSION           the last option, since it may contain commas\n\n"
    "Example:\n"
    "  postbox emulator --subscription "
    "catalog.video.events.catalog-reader=catalog.video.events,ordered";
constexpr char kFaultFooter[] =
    "Faults are tried in the order in which they were added; the first one that matches a call has "
    "an effect. No value may contain a comma.\n\n"
    "Keys of a fault:\n"
    "  rpc=NAME             the call, such as Publish or StreamingPull (default: every call)\n"
    "  code=CODE            status as a gRPC name or number (default: UNAVAILABLE)\n"
    "  message=TEXT         text of the status (default: injected fault)\n"
    "  count=N              how many times it takes effect (default: 0, no limit)\n"
    "  skip=N               matching calls that it leaves alone first (default: 0)\n"
    "  probability=P        above 0, at most 1 (default: 1)\n"
    "  latency-ms=N         delay of the call in milliseconds (default: 0)\n"
    "  after-effect         the call takes effect before it is delayed or fails\n"
    "  ordering-key=KEY     only calls with a message that has this ordering key\n"
    "  attribute=KEY:VALUE  only calls with a message that has this attribute; without VALUE, any "
    "value\n"
    "  action=status        the call fails with the code (the default)\n"
    "  action=delay         only the latency (the default with latency-ms and no code)\n"
    "  action=abort-stream  a stream ends with the code when it is about to send messages\n"
    "  action=stall         a stream sends nothing and ignores requests until --clear\n"
    "  action=ping-silence  a stream does not answer pings\n"
    "  action=ack-error     ack ids fail with error-info, every second one with partial\n"
    "  action=big-trailer   the call fails with the code and trailer-bytes=N more bytes of "
    "trailers\n\n"
    "Example:\n"
    "  postbox emulator-fault --endpoint 127.0.0.1:8085 rpc=Publish,code=UNAVAILABLE,count=3";

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

void AddRebuild(CLI::App* pull, const puller::PullOptions* pull_options,
                cli::RebuildOptions* options) {
  CLI::Option* rebuild =
      pull->add_option("--rebuild", options->projection,
                       "Rebuild the target of this projection: apply messages of the past to a "
                       "shadow of it, replace its rows, and end. With --subscription from that "
                       "Pub/Sub subscription, otherwise from one that is created for it")
          ->type_name("PROJECTION");
  CLI::Option* since =
      pull->add_option("--since", options->since,
                       "Rebuild from the messages that were published since this time; the topic "
                       "must retain them")
          ->type_name("RFC3339");
  CLI::Option* snapshot =
      pull->add_option("--snapshot", options->snapshot,
                       "Rebuild from the messages that were not acknowledged when this snapshot of "
                       "Pub/Sub was created, and from later ones");
  CLI::Option* now = pull->add_flag("--now", options->now,
                                    "Rebuild from what is published from now on, such as a "
                                    "backfill; postbox.finish_rebuild then replaces the rows");
  CLI::Option* keys =
      pull->add_option("--keys", options->keys,
                       "Replace the row of this key only; repeat for several (default: all)")
          ->type_name("KEY");
  CLI::Option* absent =
      pull->add_option("--absent", options->absent,
                       "What becomes of rows of the target for which no event came")
          ->capture_default_str()
          ->check(CLI::IsMember({"keep", "delete"}));
  CLI::Option* lagging =
      pull->add_option("--lagging", options->lagging,
                       "What becomes of rows that are newer than their last event of the rebuild: "
                       "wait for the event, or keep them")
          ->capture_default_str()
          ->check(CLI::IsMember({"wait", "keep"}));
  CLI::Option* dry_run =
      pull->add_flag("--dry-run", options->dry_run, "Print what --rebuild would create");
  CLI::Option* cancel = pull->add_flag("--cancel", options->cancel,
                                       "Cancel the rebuild, and remove what was created for it");
  for (CLI::Option* option : {since, snapshot, now, keys, absent, lagging, dry_run, cancel}) {
    option->needs(rebuild);
  }
  since->excludes(snapshot)->excludes(now);
  snapshot->excludes(now);
  pull->callback([pull_options, options] {
    if (options->projection.empty() || options->cancel) return;
    const bool from = !options->since.empty() || !options->snapshot.empty() || options->now;
    if (!from && pull_options->subscriptions.empty()) {
      throw CLI::ValidationError("--rebuild", "needs --since, --snapshot, --now or --subscription");
    }
    if (pull_options->subscriptions.size() > 1) {
      throw CLI::ValidationError("--rebuild", "takes one --subscription");
    }
  });
}

CLI::App* AddPull(CLI::App* app, puller::PullOptions* options, cli::RebuildOptions* rebuild) {
  CLI::App* pull = app->add_subcommand(
      "pull", "Receive the messages of subscriptions and apply them in the database");
  pull->add_option("--dsn", options->dsn, cli::kDsnHelp);
  pull->add_option(
      "--subscription", options->subscriptions,
      "Name of a row of postbox.subscription to pull; repeat for several (default: all)");
  pull->add_option("--endpoint", options->endpoint, cli::kEndpointHelp);
  pull->add_option("--project", options->project, cli::kProjectHelp);
  pull->add_option_function<std::vector<std::string>>(
          "--credential",
          [options](const std::vector<std::string>& files) {
            for (const std::string& file : files) TakeCredentialFile(file, options);
          },
          "Read the credential NAME from FILE, an absolute path on this machine, whatever its kind "
          "and file in the database; repeat for several. A NAME that the database does not have is "
          "an error at the start")
      ->type_name("NAME=FILE");
  pull->add_option("--grace-period", options->grace_period_seconds,
                   "Seconds from SIGTERM or SIGINT to the end of the process, even if the database "
                   "or Pub/Sub does not answer; 0 and 1 count as 2")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
  pull->add_option(
          "--log-format", options->log_format,
          "Format of the log on standard error: key=value text, or one JSON object per line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  pull->add_option("--otlp-endpoint", options->otlp_endpoint,
                   "Address of an OpenTelemetry collector to send traces to, by OTLP over gRPC: "
                   "http://host:port is plain text, https://host:port is TLS; the default port is "
                   "4317. Only messages of sampled traces have spans. OTEL_SERVICE_NAME names the "
                   "service (default: no traces; postbox-puller)")
      ->envname("OTEL_EXPORTER_OTLP_ENDPOINT");
  CLI::Option* http =
      pull->add_option("--http", options->http,
                       "Serve /metrics, /livez and /readyz over HTTP at this address; :PORT is "
                       "127.0.0.1, 0.0.0.0:PORT and [::]:PORT are all addresses, and port 0 a free "
                       "one (default: no server)")
          ->type_name("HOST:PORT")
          ->check(cli::ListenAddressCheck);
  AddRebuild(pull, options, rebuild);
  http->excludes("--rebuild");
  pull->footer(
      "It opens one connection to the database for the configuration, one for each subscription, "
      "and, while there is work for them, up to one for each applier of a subscription (4 by "
      "default). A pooler must have room for them.\n\n"
      "SIGHUP reloads the configuration, which is also read every 10 seconds.\n\n"
      "Exit status: 0 after SIGTERM or SIGINT, 1 after an error, 2 if the command line is "
      "wrong. With --rebuild: 0 when the rows were replaced, 1 after an error or if the rebuild "
      "was cancelled by others, 3 after SIGTERM or SIGINT; the same command goes on.\n\n"
      "Examples:\n"
      "  postbox pull --dsn \"host=db dbname=reader user=reader\" --project my-project\n"
      "  postbox pull --dsn \"host=db dbname=reader user=reader\" --rebuild "
      "catalog_read.video_projection --since 2026-01-01T00:00:00Z");
  return pull;
}

void AddEmulatorTls(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  CLI::Option* certificate =
      emulator->add_option("--tls-cert", options->tls.certificate_file,
                           "Certificate (PEM); with it the port serves TLS instead of plain text");
  CLI::Option* key =
      emulator->add_option("--tls-key", options->tls.key_file, "Private key (PEM) of --tls-cert");
  certificate->needs(key)->type_name("FILE");
  key->needs(certificate)->type_name("FILE");
  emulator
      ->add_option("--trust", options->accounts,
                   "Service account whose self-signed tokens are accepted, and its public key or "
                   "certificate (PEM), which is read at each call; repeat for several. Calls "
                   "without an accepted token are refused")
      ->type_name("EMAIL=FILE")
      ->needs(certificate);
  emulator
      ->add_option(
          "--tls-host", options->hosts,
          "Host name that the audience of a self-signed token may have; repeat for several")
      ->type_name("HOST")
      ->capture_default_str();
}

void AddEmulatorQuotas(CLI::App* emulator, postbox::emulator::PublishRates* rates) {
  const auto add = [emulator](const char* name, int64_t* rate, const char* help) {
    emulator->add_option(name, *rate, help)->type_name("BYTES")->check(CLI::NonNegativeNumber);
  };
  add("--key-throughput", &rates->key,
      "Bytes per second that may be published with one ordering key; more is refused with "
      "RESOURCE_EXHAUSTED; Google's limit is 1000000 (default: 0, no limit)");
  add("--topic-throughput", &rates->topic,
      "Bytes per second that may be published to one topic; more is refused with "
      "RESOURCE_EXHAUSTED (default: 0, no limit)");
  add("--throughput", &rates->all,
      "Bytes per second that may be published to all topics together; more is refused with "
      "RESOURCE_EXHAUSTED (default: 0, no limit)");
}

void AddEmulatorIam(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  CLI::Option* enforce =
      emulator
          ->add_flag("--enforce-iam", options->enforce_iam,
                     "Allow callers only what the IAM policies of topics, subscriptions and "
                     "snapshots grant them (default: every caller may do everything); needs "
                     "--trust or --auth-port, too")
          ->needs("--tls-cert");
  emulator
      ->add_option(
          "--iam-admin", options->administrators,
          "Account that may do everything, including changes of policies; repeat for several")
      ->type_name("EMAIL")
      ->needs(enforce);
}

void AddEmulatorAuth(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  postbox::emulator::AuthOptions* auth = &options->auth;
  CLI::Option* port =
      emulator
          ->add_option("--auth-port", auth->port,
                       "Port of an HTTP server that issues tokens: OAuth token endpoint, token "
                       "exchange, IAM credentials, metadata server; 0 takes a free one. Calls "
                       "without an accepted token are refused (default: no such server)")
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
                   "Account or principal CALLER that may obtain tokens of the account EMAIL; "
                   "repeat for several")
      ->type_name("CALLER=EMAIL")
      ->needs(port);
  emulator
      ->add_option("--auth-metadata", auth->metadata_account,
                   "Account of the machine, whose tokens the metadata server issues (default: "
                   "none, so there is no metadata server)")
      ->type_name("EMAIL")
      ->needs(port);
  emulator
      ->add_option(
          "--auth-metadata-scope", auth->metadata_scope,
          "Scopes of the tokens that the metadata server issues, whatever scopes a request names")
      ->type_name("SCOPES")
      ->capture_default_str()
      ->needs(port);
  emulator
      ->add_option("--auth-token-life", auth->token_seconds,
                   "Seconds until an issued token expires")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600))
      ->needs(port);
}

void AddEmulatorDelivery(CLI::App* emulator, postbox::emulator::EmulatorOptions* options) {
  emulator
      ->add_option("--delivery-delay", options->delivery_delay_ms,
                   "Milliseconds between the response to a Publish call and the delivery of its "
                   "messages, so that clients know an id before the message arrives")
      ->capture_default_str()
      ->check(CLI::Range(0, 900));
  emulator->add_flag("--deliver-twice", options->broker.deliver_twice,
                     "Deliver every message a second time after its first acknowledgement");
  emulator->add_flag(
      "--release-on-disconnect", options->broker.release_on_disconnect,
      "Redeliver the messages of a stream as soon as it ends (default: at their ack deadlines)");
}

CLI::App* AddEmulator(CLI::App* app, emulator::EmulatorOptions* options) {
  CLI::App* emulator = app->add_subcommand(
      "emulator", "Run a Pub/Sub server for development and tests, until SIGTERM or SIGINT");
  emulator->add_option("--host", options->host, "Address or host name to listen on")
      ->capture_default_str();
  emulator
      ->add_option(
          "--port", options->port,
          "Port to listen on; 0 takes a free one (default: 8085, or a free one if 8085 is in use)")
      ->check(CLI::Range(0, 65535));
  emulator
      ->add_option("--project", options->project,
                   "Project that completes short names of topics and subscriptions")
      ->capture_default_str();
  emulator
      ->add_option("--topic", options->topics,
                   "Topic to create at the start, as an id or projects/...; one that exists stays "
                   "as it is; repeat for several")
      ->type_name("NAME");
  emulator
      ->add_option("--subscription", options->subscriptions,
                   "Subscription to create at the start, with its topic and dead-letter topic if "
                   "they are missing; one that exists stays as it is; repeat for several. The "
                   "options are listed below")
      ->type_name(
          "NAME=TOPIC[,ordered][,exactly-once][,retain-acked][,ack-deadline=SECONDS]"
          "[,retry=MIN_MS:MAX_MS][,dead-letter=TOPIC:ATTEMPTS][,filter=EXPRESSION]");
  options->broker.auto_create = true;
  emulator->add_flag(
      "--auto-create,!--no-auto-create", options->broker.auto_create,
      "Create a missing topic when a message is published to it or a subscription to it is created "
      "(the default); with --no-auto-create such calls fail with NOT_FOUND");
  AddEmulatorDelivery(emulator, options);
  emulator
      ->add_option(
          "--data-dir", options->broker.data_directory,
          "Directory that keeps topics, subscriptions, snapshots, schemas, policies and messages "
          "across restarts; created if it is missing (default: everything is in memory only)")
      ->type_name("DIR");
  AddEmulatorQuotas(emulator, &options->broker.publish_rates);
  AddEmulatorTls(emulator, options);
  AddEmulatorAuth(emulator, options);
  AddEmulatorIam(emulator, options);
  emulator
      ->add_option("--fault", options->faults,
                   "Fault that is injected from the start; repeat for several. postbox "
                   "emulator-fault --help explains the keys")
      ->type_name(kFaultHelp);
  emulator->footer(kEmulatorFooter);
  return emulator;
}

CLI::App* AddEmulatorFault(CLI::App* app, emulator::FaultClientOptions* options) {
  CLI::App* fault = app->add_subcommand(
      "emulator-fault", "Inject faults into a running emulator, clear them, or print its counters");
  fault
      ->add_option_function<std::string>(
          "--endpoint",
          [options](const std::string& text) {
            std::string problem;
            if (!cli::PlainAddress(text, &options->address, &problem)) {
              throw CLI::ValidationError("--endpoint", problem);
            }
          },
          "HOST:PORT or http://HOST:PORT of the emulator; plain text only")
      ->required();
  fault
      ->add_option(
          "fault", options->specs,
          "Fault to add after those that are there; repeat for several. The keys are listed below")
      ->type_name(kFaultHelp);
  fault->add_flag("--clear", options->clear,
                  "Remove all faults before the given ones are added; delayed calls and stalled "
                  "streams continue");
  fault->add_flag("--stats", options->stats,
                  "Print the emulator's counters since its start as one JSON object");
  fault->footer(kFaultFooter);
  return fault;
}

const CLI::App* AddCompletion(CLI::App* app, std::string* shell) {
  CLI::App* completion = app->add_subcommand(
      "completion", "Print a script for the completion of command lines in a shell");
  completion->add_option("SHELL", *shell, "Shell to print the script for")
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
  app.footer(
      "Each subcommand has its own --help.\n\n"
      "Exit status: 0 on success, 1 after an error, 2 if the command line is wrong.");

  puller::PullOptions pull_options;
  emulator::EmulatorOptions emulator_options;
  emulator::FaultClientOptions fault_options;
  cli::RebuildOptions rebuild_options;
  const CLI::App* pull = AddPull(&app, &pull_options, &rebuild_options);
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
  if (*pull && !rebuild_options.projection.empty()) {
    return cli::RunRebuild(pull_options, rebuild_options);
  }
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
