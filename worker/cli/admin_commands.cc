#include "worker/cli/admin_commands.h"

#include <array>
#include <memory>
#include <string>

#include "worker/cli/admin/broker_commands.h"
#include "worker/cli/admin/screen.h"
#include "worker/cli/audit/audit.h"
#include "worker/cli/console/console.h"
#include "worker/cli/doctor/doctor.h"
#include "worker/cli/metrics/metrics.h"
#include "worker/cli/provision/provision.h"
#include "worker/metrics/listen_address.h"

namespace postbox::cli {
namespace {

// Of the commands that need no database if they are told where Pub/Sub is.
// Returns the two options.
std::array<CLI::Option*, 2> AddPubSub(CLI::App* command, PlaceOptions* options) {
  return {command->add_option("--project", options->project,
                              "Project that completes short names (default: postbox.project_id of "
                              "the database, which then also gives postbox.endpoint)"),
          command->add_option(
              "--endpoint", options->endpoint,
              "http://HOST:PORT (plain), https://HOST:PORT or HOST:PORT (TLS); default: "
              "postbox.endpoint of the database if it is asked for the project, else "
              "PUBSUB_EMULATOR_HOST, else Google")};
}

void AddPlace(CLI::App* command, PlaceOptions* options) {
  AddPubSub(command, options);
  command->add_option("--dsn", options->dsn, kDsnHelp);
}

Command AddDoctor(CLI::App* app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* doctor = app->add_subcommand(
      "doctor",
      "Check the database, Pub/Sub and the connection to both, with a remedy for each problem");
  doctor->add_option("--dsn", options->dsn, kDsnHelp);
  doctor->add_option("--endpoint", options->endpoint, kEndpointHelp);
  doctor->add_option("--project", options->project, kProjectHelp);
  doctor->add_flag("--offline", options->offline,
                   "Check the database only, and make no call to Pub/Sub");
  doctor->add_flag("--json", options->json, "Print one JSON object instead of text");
  doctor->add_flag("--strict", options->strict, "Exit with status 1 also if there is a warning");
  doctor->footer(
      "Exit status: 0 if there is no error, 1 if there is one (with --strict, also for a warning), "
      "2 if the command line is wrong.\n\n"
      "Example:\n"
      "  postbox doctor --dsn \"host=db dbname=shop user=shop_monitor\"");
  return {doctor, [options] { return RunDoctor(*options); }};
}

Command AddStatus(CLI::App* app) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* status = app->add_subcommand(
      "status", "Show publications, subscriptions and workers of a database, problems first");
  status->add_option("--dsn", options->dsn, kDsnHelp);
  status->add_flag("--json", options->json, "Print one JSON object instead of text");
  status->footer(
      "Example:\n"
      "  postbox status --dsn \"host=db dbname=shop user=shop_monitor\"");
  return {status, [options] { return RunStatus(*options); }};
}

Command AddMetrics(CLI::App* app) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* metrics = app->add_subcommand(
      "metrics", "Print the metrics of a database, or serve them to Prometheus");
  metrics->add_option("--dsn", options->dsn, kDsnHelp);
  metrics
      ->add_option("--listen", options->listen,
                   "Serve /metrics at this address until SIGTERM or SIGINT; :PORT is 127.0.0.1, "
                   "and port 0 a free one (default: print them once)")
      ->type_name("HOST:PORT")
      ->check(ListenAddressCheck);
  metrics->footer(
      "The role needs to be a member of pg_monitor or postbox_operator. A scrape that fails is "
      "answered with status 503 and the cause.\n\n"
      "Example:\n"
      "  postbox metrics --dsn \"host=db dbname=shop user=shop_monitor\" --listen 0.0.0.0:9465");
  return {metrics, [options] { return RunMetrics(*options); }};
}

Command AddTop(CLI::App* app) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* top = app->add_subcommand(
      "top", "Watch publications, subscriptions and workers in a terminal; q quits");
  top->add_option("--dsn", options->dsn, kDsnHelp);
  top->add_option("--interval", options->interval, "Seconds between two refreshes")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  top->footer(
      "Example:\n"
      "  postbox top --interval 5 --dsn \"host=db dbname=shop\"");
  return {top, [options] { return RunTop(*options); }};
}

Command AddTopics(CLI::App* app) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* topics = app->add_subcommand("topics", "List the topics of the project");
  AddPlace(topics, &options->broker);
  topics->add_flag("--json", options->json, "Print one JSON object per line instead of a table");
  topics->footer(
      "Example:\n"
      "  postbox topics --project my-project");
  return {topics, [options] { return RunTopics(*options); }};
}

Command AddSubscriptions(CLI::App* app) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* subscriptions = app->add_subcommand(
      "subscriptions", "List the Pub/Sub subscriptions of the project with their properties");
  AddPlace(subscriptions, &options->broker);
  subscriptions->add_flag("--json", options->json,
                          "Print one JSON object per line instead of a table");
  subscriptions->footer(
      "Example:\n"
      "  postbox subscriptions --project my-project --json");
  return {subscriptions, [options] { return RunSubscriptions(*options); }};
}

Command AddPublish(CLI::App* app) {
  auto options = std::make_shared<PublishOptions>();
  CLI::App* publish =
      app->add_subcommand("publish", "Publish one message for a test, and print its id");
  AddPlace(publish, &options->broker);
  publish
      ->add_option("TOPIC", options->topic,
                   "Topic: an id, or a full name projects/PROJECT/topics/ID")
      ->required();
  publish->add_option("--data", options->data,
                      "Data of the message (default: standard input up to its end)");
  publish->add_option("--key", options->key, "Ordering key of the message (default: none)");
  publish
      ->add_option("--attribute", options->attributes,
                   "Attribute of the message; repeat for several")
      ->type_name("NAME=VALUE");
  publish->footer(
      "Example:\n"
      "  postbox publish shop.order.events --key 7 --data '{\"total\": 1}' --attribute "
      "event_type=order.created");
  return {publish, [options] { return RunPublish(*options); }};
}

Command AddTail(CLI::App* app) {
  auto options = std::make_shared<TailOptions>();
  CLI::App* tail = app->add_subcommand(
      "tail", "Print the messages of a subscription, one JSON object per line, until Ctrl-C");
  AddPlace(tail, &options->broker);
  tail->add_option("SUBSCRIPTION", options->subscription,
                   "Subscription: an id, or a full name projects/PROJECT/subscriptions/ID")
      ->required();
  tail->add_flag("--ack", options->ack,
                 "Acknowledge the messages, so that they are not delivered again (default: they "
                 "are given back at the end)");
  tail->add_option("--count", options->count, "End after this many messages (default: no limit)")
      ->check(CLI::Range(1, 1000000));
  tail->footer(
      "Other consumers of the subscription do not receive a message while this command holds it. "
      "Use a separate subscription for tests.\n\n"
      "Example:\n"
      "  postbox tail shop.order.events.shop-try --count 1");
  return {tail, [options] { return RunTail(*options); }};
}

Command AddSeek(CLI::App* app) {
  auto options = std::make_shared<SeekOptions>();
  CLI::App* seek =
      app->add_subcommand("seek", "Move a subscription back or forward to a time or a snapshot");
  AddPlace(seek, &options->broker);
  seek->add_option("SUBSCRIPTION", options->subscription,
                   "Subscription: an id, or a full name projects/PROJECT/subscriptions/ID")
      ->required();
  CLI::Option_group* to = seek->add_option_group("to", "Target");
  to->add_option(
        "--time", options->time,
        "Messages published before this time count as acknowledged, later ones as not acknowledged")
      ->type_name("RFC3339");
  to->add_option("--snapshot", options->snapshot,
                 "Snapshot, as an id or projects/...: messages count as acknowledged if they were "
                 "when it was created");
  to->require_option(1);
  seek->footer(
      "Acknowledged messages are delivered again only if the subscription or its topic retains "
      "them. An inbox applies an event once within its retention, however often it is "
      "delivered.\n\n"
      "Example:\n"
      "  postbox seek shop.order.events.shop-reader --time 2026-01-31T12:00:00Z");
  return {seek, [options] { return RunSeek(*options); }};
}

Command AddProvision(CLI::App* app) {
  auto options = std::make_shared<ProvisionOptions>();
  CLI::App* provision = app->add_subcommand(
      "provision", "Create and update topics, subscriptions, schemas and IAM rights from a file");
  CLI::Option* file =
      provision
          ->add_option("--file", options->file, "File to read, YAML or JSON; - is standard input")
          ->type_name("FILE");
  provision->add_option("--project", options->place.project,
                        "Project (default: project of the file, else postbox.project_id of the "
                        "database, which then also gives postbox.endpoint)");
  provision->add_option(
      "--endpoint", options->place.endpoint,
      "http://HOST:PORT (plain), https://HOST:PORT or HOST:PORT (TLS); default: postbox.endpoint "
      "of the database if it is asked for the project, else PUBSUB_EMULATOR_HOST, else Google");
  provision->add_option("--dsn", options->place.dsn, kDsnHelp);
  CLI::Option* dry_run = provision->add_flag("--dry-run", options->dry_run,
                                             "Print the differences and change nothing");
  CLI::Option* skip = provision->add_flag(
      "--skip-unsupported", options->skip_unsupported,
      "Skip what the server does not implement, with a warning for each, instead of failing");
  CLI::Option* print = provision
                           ->add_option("--print", options->print,
                                        "Print commands of gcloud or a configuration for Terraform "
                                        "that create everything in the file; no server is called")
                           ->check(CLI::IsMember({"gcloud", "terraform"}))
                           ->excludes(dry_run)
                           ->excludes(skip);
  CLI::Option* from_database =
      provision
          ->add_flag("--from-database", options->from_database,
                     "Write a file for the publications and subscriptions of the database: to "
                     "--file, which must not exist, or to standard output")
          ->excludes(dry_run)
          ->excludes(skip)
          ->excludes(print);
  provision->callback([file, from_database] {
    if (file->empty() && from_database->empty()) throw CLI::RequiredError("--file");
  });
  provision->footer(
      "It never deletes anything and revokes no right. A change that Pub/Sub does not allow is "
      "refused before anything is changed. If a run is interrupted, the next one completes it.\n\n"
      "Exit status: 0 if everything is as the file describes it, 1 after an error, 2 if the "
      "command line is wrong, 3 if --dry-run found differences.\n\n"
      "Example:\n"
      "  postbox provision --from-database --dsn \"host=db dbname=shop\" --file shop.yaml\n"
      "  postbox provision --file shop.yaml --dry-run");
  return {provision, [options] { return RunProvision(*options); }};
}

void AddAuditRepair(CLI::App* audit, AuditOptions* options) {
  CLI::Option* repair = audit->add_flag(
      "--repair", options->repair,
      "Say for each difference what a repair would do: publish missing events again, and emit the "
      "last event of a key again if its row differs");
  CLI::Option* execute =
      audit->add_flag("--execute", options->execute, "Do it, and say what was done");
  execute->needs(repair);
  audit
      ->add_flag("--repair-deletes", options->deletes,
                 "Also emit a delete again if its row is still there")
      ->needs(repair);
}

Command AddAudit(CLI::App* app) {
  auto options = std::make_shared<AuditOptions>();
  CLI::App* audit = app->add_subcommand(
      "audit", "Compare what a publication has emitted with what a subscription has applied");
  audit
      ->add_option("--source", options->source,
                   "Connection string or URI of the database with the publication")
      ->required();
  audit
      ->add_option("--reader", options->reader,
                   "Connection string or URI of the database with the subscription")
      ->required();
  audit->add_option("--publication", options->publication,
                    "Publication (default: the only one of the source)");
  audit->add_option("--subscription", options->subscription,
                    "Subscription (default: the only one of the reader)");
  audit
      ->add_option("--state", options->state,
                   "File that keeps what is proven, so that the next audit compares only what is "
                   "new or unsettled (default: everything is compared)")
      ->type_name("FILE");
  audit->add_flag("--full", options->full, "Compare everything, and replace the file of --state");
  audit->add_option("--since", options->since, "Leave out events that occurred before this time")
      ->type_name("RFC3339");
  audit
      ->add_option("--event-type", options->event_types,
                   "Compare only events of this type (repeatable; default: all): for a "
                   "subscription with a filter")
      ->type_name("TYPE");
  audit
      ->add_option("--grace", options->grace,
                   "Seconds that a published event may take to arrive before it is missing")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
  audit->add_flag("--rows,!--no-rows", options->rows,
                  "Compare the rows of projections (the default); --no-rows leaves them out");
  audit->add_option("--limit", options->limit, "Differences that are printed one by one")
      ->capture_default_str()
      ->check(CLI::Range(0, 100000));
  audit->add_flag("--record", options->record, "Store the result in postbox.audit of the reader");
  AddAuditRepair(audit, options.get());
  audit->add_flag("--json", options->json, "Print one JSON object instead of text");
  audit->footer(
      "Exit status: 0 if nothing differs, 1 if something could not be compared, 2 if the command "
      "line is wrong, 3 if something differs.\n\n"
      "Example:\n"
      "  postbox audit --source \"host=db dbname=shop\" --reader \"host=db dbname=search\"");
  return {audit, [options] { return RunAudit(*options); }};
}

void AddBroker(CLI::App* console, ConsoleOptions* options) {
  CLI::Option* broker = console->add_flag(
      "--broker", options->broker,
      "Allow calls to Pub/Sub: to seek a subscription, and to show the differences that postbox "
      "provision would change");
  for (CLI::Option* option : AddPubSub(console, &options->place)) option->needs(broker);
  console
      ->add_option("--provision-file", options->provision_file,
                   "File of postbox provision that Pub/Sub is compared with (default: the "
                   "publications and subscriptions of the database)")
      ->type_name("FILE")
      ->needs(broker);
}

Command AddConsole(CLI::App* app) {
  auto options = std::make_shared<ConsoleOptions>();
  CLI::App* console = app->add_subcommand(
      "console",
      "Serve a page for browsers, which shows what Postbox does in a database, and acts on it");
  console->add_option("--dsn", options->dsn, kDsnHelp);
  console
      ->add_option("--listen", options->listen,
                   "Address and port to listen on; port 0 is any free one, which is printed")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  console
      ->add_option("--public-url", options->public_url,
                   "URL under which browsers reach it through a proxy: its host is accepted in the "
                   "header Host, its path is the prefix of all paths, and with https the cookie is "
                   "Secure")
      ->type_name("URL");
  console
      ->add_option(
          "--token-file", options->token_file,
          "File with a token of 32 or more bytes: a user who has it logs in as the role of "
          "--dsn (default: only roles with their password log in)")
      ->type_name("FILE");
  console->add_flag("--allow-actions", options->allow_actions,
                    "Allow what changes something (default: read only); the rights of the role "
                    "decide, too");
  AddBroker(console, options.get());
  console->add_flag("--insecure-listen", options->insecure_listen,
                    "Allow an address that other machines reach, although the console does not "
                    "speak TLS: for a proxy on another machine");
  console
      ->add_option("--idle-timeout", options->idle_seconds,
                   "Seconds after which a session ends that is not used")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  console
      ->add_option("--max-sessions", options->most_sessions,
                   "The most sessions, each with one connection to the database")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  console
      ->add_option("--log-format", options->log_format,
                   "Format of the log on standard error: key=value text, or one JSON object per "
                   "line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  console->footer(
      "Exit status: 0 after SIGTERM or SIGINT, 1 after an error, 2 if the command line is wrong."
      "\n\n"
      "Example:\n"
      "  postbox console --dsn \"host=db dbname=shop\" --listen 127.0.0.1:8090 --allow-actions");
  return {console, [options] { return RunConsole(*options); }};
}

void AddSnapshot(CLI::App* app, std::vector<Command>* commands) {
  CLI::App* snapshot = app->add_subcommand(
      "snapshot", "Create or delete a snapshot of the acknowledgements of a subscription");
  snapshot->require_subcommand(1);
  snapshot->footer(
      "Example:\n"
      "  postbox snapshot create before-the-release shop.order.events.shop-reader\n"
      "  postbox snapshot delete before-the-release");
  auto made = std::make_shared<SnapshotOptions>();
  CLI::App* create = snapshot->add_subcommand(
      "create", "Create a snapshot, which Pub/Sub keeps for 7 days at most, and print until when");
  AddPlace(create, &made->broker);
  create
      ->add_option("SNAPSHOT", made->snapshot,
                   "Snapshot: an id, or a full name projects/PROJECT/snapshots/ID")
      ->required();
  create
      ->add_option("SUBSCRIPTION", made->subscription,
                   "Subscription: an id, or a full name projects/PROJECT/subscriptions/ID")
      ->required();
  create->footer(
      "Example:\n"
      "  postbox snapshot create before-the-release shop.order.events.shop-reader");
  auto gone = std::make_shared<SnapshotOptions>();
  CLI::App* drop = snapshot->add_subcommand("delete", "Delete a snapshot");
  AddPlace(drop, &gone->broker);
  drop->add_option("SNAPSHOT", gone->snapshot,
                   "Snapshot: an id, or a full name projects/PROJECT/snapshots/ID")
      ->required();
  drop->footer(
      "Example:\n"
      "  postbox snapshot delete before-the-release");
  commands->push_back({create, [made] { return RunSnapshotCreate(*made); }});
  commands->push_back({drop, [gone] { return RunSnapshotDelete(*gone); }});
}

}  // namespace

std::string ListenAddressCheck(const std::string& text) {
  if (metrics::ParseListenAddress(text)) return "";
  return "\"" + text + "\" is not HOST:PORT, [ADDRESS]:PORT or :PORT";
}

std::vector<Command> AddAdminCommands(CLI::App* app) {
  std::vector<Command> commands = {AddDoctor(app),    AddStatus(app), AddTop(app),
                                   AddMetrics(app),   AddTopics(app), AddSubscriptions(app),
                                   AddPublish(app),   AddTail(app),   AddSeek(app),
                                   AddProvision(app), AddAudit(app),  AddConsole(app)};
  AddSnapshot(app, &commands);
  return commands;
}

}  // namespace postbox::cli
