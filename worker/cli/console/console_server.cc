#include "worker/cli/console/console_server.h"

#include <httplib.h>

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "worker/cli/console/api.h"
#include "worker/cli/console/log_in.h"
#include "worker/cli/console/login_limit.h"
#include "worker/cli/console/metric_sampler.h"
#include "worker/cli/console/page_files.h"
#include "worker/cli/console/secret.h"
#include "worker/cli/console/session_rights.h"
#include "worker/cli/console/sessions.h"
#include "worker/cli/console/sources.h"
#include "worker/puller/log.h"

namespace postbox::cli {
namespace {

using httplib::Request;
using httplib::Response;
using Clock = std::chrono::steady_clock;

constexpr int kThreads = 64;
constexpr size_t kMostBytes = 65536;  // of a body: 200 uuids have 8 kB
constexpr time_t kReadSeconds = 5;
constexpr time_t kIdleSeconds = 5;  // of a connection between two requests
constexpr int kMostLogIns = 4;      // at the same time: each may wait for the database
constexpr char kCookie[] = "postbox_console";
constexpr char kCsrfHeader[] = "X-Postbox-CSRF";

// Nothing of another origin is loaded, and nothing frames or remembers an answer.
const httplib::Headers& SafeHeaders() {
  static const auto& headers = *new httplib::Headers{
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
       "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
      {"Cache-Control", "no-store"}};
  return headers;
}

void Put(const Answer& answer, Response* response) {
  response->status = answer.status;
  response->set_content(answer.body, "application/json");
}

// A role has room for its users, and one role alone fills neither the sessions nor the threads.
size_t MostOfRole(int most_sessions) { return static_cast<size_t>(std::max(most_sessions / 4, 1)); }

// Nothing if the console makes no calls to Pub/Sub.
std::optional<PlaceOptions> PlaceOf(const ConsoleOptions& options) {
  if (!options.broker) return std::nullopt;
  PlaceOptions place = options.place;
  place.dsn = options.dsn;
  return place;
}

// The value of the cookie of the console; empty if there is none.
std::string CookieOf(const Request& request) {
  const std::string cookies = "; " + request.get_header_value("Cookie");
  const std::string name = std::string("; ") + kCookie + "=";
  const size_t begin = cookies.find(name);
  if (begin == std::string::npos) return "";
  const size_t value = begin + name.size();
  return cookies.substr(value, cookies.find(';', value) - value);
}

// Nothing if a name comes twice, or a text has a NUL.
std::optional<Arguments> ArgumentsOf(const Request& request) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : request.params) {
    if (value.find('\0') != std::string::npos) return std::nullopt;
    if (!values.emplace(name, value).second) return std::nullopt;
  }
  return Arguments(std::move(values));
}

// Nothing if the body is no JSON object.
std::optional<JsonValue> OrderOf(const Request& request) {
  if (!request.get_header_value("Content-Type").starts_with("application/json")) {
    return std::nullopt;
  }
  JsonValue order = JsonValue::parse(request.body, nullptr, /*allow_exceptions=*/false);
  return order.is_object() ? std::optional(std::move(order)) : std::nullopt;
}

}  // namespace

bool IsOpenToAll(const std::string& file) {
  struct stat status {};
  return stat(file.c_str(), &status) == 0 && (status.st_mode & (S_IROTH | S_IWOTH)) != 0;
}

std::string ReadToken(const std::string& file) {
  constexpr size_t kShortest = 32;
  constexpr size_t kLongest = 1024;
  if (IsOpenToAll(file)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string token(kLongest, '\0');
  in.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(in.gcount()));
  constexpr char kBlanks[] = " \t\r\n";
  const size_t begin = token.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  token = token.substr(begin, token.find_last_not_of(kBlanks) - begin + 1);
  return token.size() < kShortest ? "" : token;
}

class ConsoleServer::Impl {
 public:
  Impl(const ConsoleOptions& options, PublicUrl url, int interrupt)
      : options_(options),
        url_(std::move(url)),
        interrupt_(interrupt),
        sessions_({.most = static_cast<size_t>(options.most_sessions),
                   .most_of_role = MostOfRole(options.most_sessions),
                   .idle = std::chrono::seconds(options.idle_seconds)}),
        sources_{.charts = {},
                 .broker = BrokerPlace(PlaceOf(options)),
                 .provision_file = options.provision_file} {}
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int Listen(OwnAddress address) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kMostBytes);
    server_.set_read_timeout(kReadSeconds);
    server_.set_write_timeout(kReadSeconds);
    server_.set_keep_alive_timeout(kIdleSeconds);
    // An answer is written in two pieces, and the second would wait 40 ms for the client.
    server_.set_tcp_nodelay(true);
    server_.set_default_headers(SafeHeaders());
    server_.set_pre_routing_handler([this](const Request& request, Response& response) {
      // A request can name thousands of ranges, and its answer would have the body as many times.
      // The handlers see the request of the server as a constant, which it is not.
      const_cast<Request&>(request).ranges.clear();
      const bool refused = RefuseForeign(request, &response);
      return refused ? httplib::Server::HandlerResponse::Handled
                     : httplib::Server::HandlerResponse::Unhandled;
    });
    server_.set_exception_handler([](const Request&, Response& response, std::exception_ptr) {
      Put(Refuse(500, "internal error"), &response);
    });
    server_.Get(".*", [this](const Request& request, Response& response) {
      if (!GivePage(request, &response)) Put(Get(request), &response);
    });
    server_.Post(".*", [this](const Request& request, Response& response) {
      Put(Post(request, &response), &response);
    });
    int port = address.port;
    if (port == 0) {
      port = server_.bind_to_any_port(address.host);
    } else if (!server_.bind_to_port(address.host, port)) {
      return -1;
    }
    if (port < 0) return -1;
    address.port = static_cast<std::uint16_t>(port);
    allowed_.emplace(address, url_);
    sampler_.emplace(options_.dsn, interrupt_, &sources_.charts);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return address.port;
  }

  void EndOldSessions() { sessions_.EndOld(Clock::now()); }

  void Stop() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
    sampler_.reset();
  }

 private:
  // Whether the request comes under another name or from another site, and is answered by that.
  bool RefuseForeign(const Request& request, Response* response) const {
    if (request.get_header_value_count("Host") != 1 ||
        !allowed_->IsHost(request.get_header_value("Host"))) {
      Put(Refuse(421, "the header Host does not name this console; see --public-url"), response);
      return true;
    }
    if (allowed_->IsOwn(request.get_header_value("Origin"),
                        request.get_header_value("Sec-Fetch-Site"))) {
      return false;
    }
    if (IsLinkToPage(request)) return false;
    Put(Refuse(403, "the request comes from another site"), response);
    return true;
  }

  // A link on any site may lead to the page, which has no data. What the page then asks for comes
  // from the page.
  bool IsLinkToPage(const Request& request) const {
    return request.method == "GET" && !request.has_header("Origin") &&
           (request.path == url_.prefix || request.path == url_.prefix + "/") &&
           request.get_header_value("Sec-Fetch-Mode") == "navigate" &&
           request.get_header_value("Sec-Fetch-Dest") == "document";
  }

  // Whether the request is for the page or one of its files, and is answered.
  bool GivePage(const Request& request, Response* response) const {
    // The URLs in the page are relative to this slash.
    const std::string begin = url_.prefix + "/";
    if (request.path == url_.prefix) {
      response->set_redirect(begin, 308);
      return true;
    }
    if (!request.path.starts_with(begin)) return false;
    const PageFile* file = FindPageFile(std::string_view(request.path).substr(begin.size()));
    if (file == nullptr) return false;
    // A browser asks each time whether its copy is that of this release.
    response->headers.erase("Cache-Control");
    response->set_header("Cache-Control", "no-cache");
    response->set_header("Vary", "Accept-Encoding");
    response->set_header("ETag", file->tag);
    if (HasTag(request.get_header_value("If-None-Match"), file->tag)) {
      response->status = 304;
    } else {
      response->set_content(file->content.data(), file->content.size(), file->type);
    }
    return true;
  }

  // Behind the prefix and /api/; nothing for other paths.
  std::optional<std::string> PathOf(const Request& request) const {
    const std::string begin = url_.prefix + "/api/";
    if (!request.path.starts_with(begin)) return std::nullopt;
    return request.path.substr(begin.size());
  }

  Answer Get(const Request& request) {
    const auto path = PathOf(request);
    if (!path) return Refuse(404, "there is no such path");
    const auto session = sessions_.Find(CookieOf(request), Clock::now());
    if (!session) return NoSession();
    const auto arguments = ArgumentsOf(request);
    if (!arguments) return Refuse(400, "a parameter is there twice, or has a NUL");
    const Session::Use use(session.get());
    if (!use.allowed()) return Refuse(429, "too many requests of this session at once");
    if (*path == "session") return Describe(session.get());
    return AnswerGet(session.get(), &sources_, *path, *arguments);
  }

  Answer Post(const Request& request, Response* response) {
    const auto path = PathOf(request);
    if (!path) return Refuse(404, "there is no such path");
    const auto order = OrderOf(request);
    if (!order) return Refuse(400, "the body is not a JSON object, or its Content-Type is not");
    if (*path == "login") return LogInFrom(request, *order, response);
    const std::string token = CookieOf(request);
    const auto session = sessions_.Find(token, Clock::now());
    if (!session) return NoSession();
    if (!SameSecret(request.get_header_value(kCsrfHeader), session->csrf())) {
      return Refuse(403, std::string("the header ") + kCsrfHeader + " is missing or wrong");
    }
    if (*path == "logout") {
      sessions_.End(token);
      SetCookie("", response);
      return {};
    }
    if (!options_.allow_actions)
      return Refuse(403, "the console is read-only: see --allow-actions");
    const Session::Use use(session.get());
    if (!use.allowed()) return Refuse(429, "too many requests of this session at once");
    Answer answer = AnswerPost(session.get(), &sources_, *path, *order);
    LogAction(request, *session, *path, *order, answer);
    return answer;
  }

  static Answer NoSession() {
    return Refuse(401, "log in: the session has ended, or there is none");
  }

  Answer Describe(Session* session) const {
    const Answer rights = ReadRights(session);
    if (rights.status != 200) return rights;
    JsonValue may = JsonValue::parse(rights.body, nullptr, /*allow_exceptions=*/false);
    return Give({{"role", session->role()},
                 {"csrf", session->csrf()},
                 {"actions_allowed", options_.allow_actions},
                 {"broker", options_.broker},
                 {"may", std::move(may)},
                 {"idle_seconds", options_.idle_seconds}});
  }

  Answer LogInFrom(const Request& request, const JsonValue& order, Response* response) {
    if (!sessions_.HasRoom(Clock::now())) return Refuse(503, "there are too many sessions");
    const LogInPlace place(&logging_in_);
    if (!place.free()) return Refuse(503, "too many users log in at this moment");
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto wait = limit_.Try(request.remote_addr, Clock::now());
      if (wait.count() > 0) {
        response->set_header("Retry-After", std::to_string(wait.count()));
        return Refuse(429,
                      "too many attempts to log in: wait " + std::to_string(wait.count()) + " s");
      }
    }
    std::string error;
    auto session = OpenSession(order, &error);
    if (!session) {
      puller::LogRepeated("a log-in failed", {{"address", request.remote_addr},
                                              {"role", TextMember(order, "role").value_or("")},
                                              {"error", error}});
      return Refuse(401, TextMember(order, "token")
                             ? "the token is wrong, or the console has none: see --token-file"
                             : "the role or the password is wrong, or the role may not use the "
                               "database");
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      limit_.Succeeded(request.remote_addr);
    }
    const Answer about = Describe(session.get());
    if (about.status != 200) return about;
    puller::LogInfo("log-in", {{"address", request.remote_addr}, {"role", session->role()}});
    const auto token = sessions_.Begin(std::move(session), Clock::now());
    if (!token) return Refuse(503, "there are too many sessions, or too many of this role");
    sessions_.End(CookieOf(request));
    SetCookie(*token, response);
    return about;
  }

  std::shared_ptr<Session> OpenSession(const JsonValue& order, std::string* error) const {
    const auto token = TextMember(order, "token");
    if (!token) {
      return LogIn(options_.dsn, TextMember(order, "role").value_or(""),
                   TextMember(order, "password").value_or(""), interrupt_, error);
    }
    const std::string own = options_.token_file.empty() ? "" : ReadToken(options_.token_file);
    if (own.empty() || !SameSecret(*token, own)) {
      *error = own.empty() ? "there is no token" : "the token is wrong";
      return nullptr;
    }
    return LogInAsSelf(options_.dsn, interrupt_, error);
  }

  void SetCookie(const std::string& value, Response* response) const {
    response->set_header("Set-Cookie",
                         std::string(kCookie) + "=" + value + "; Path=" + url_.prefix +
                             "/; HttpOnly; SameSite=Strict" + (url_.https ? "; Secure" : "") +
                             (value.empty() ? "; Max-Age=0" : ""));
  }

  static void LogAction(const Request& request, const Session& session, const std::string& path,
                        const JsonValue& order, const Answer& answer) {
    if (path == "preview") return;
    puller::Fields fields = {{"role", session.role()}, {"address", request.remote_addr}};
    for (const char* name : {"action", "kind", "name", "inbox", "outbox", "subscription", "time",
                             "snapshot", "reason"}) {
      if (const auto text = TextMember(order, name)) fields[name] = *text;
    }
    fields["status"] = answer.status;
    puller::LogInfo(answer.status == 200 ? "action" : "action failed", fields);
  }

  // One of the log-ins at this moment.
  class LogInPlace {
   public:
    explicit LogInPlace(std::atomic<int>* count) : count_(count), free_(++*count <= kMostLogIns) {}
    ~LogInPlace() { --*count_; }
    LogInPlace(const LogInPlace&) = delete;
    LogInPlace& operator=(const LogInPlace&) = delete;
    bool free() const { return free_; }

   private:
    std::atomic<int>* const count_;
    const bool free_;
  };

  const ConsoleOptions options_;
  const PublicUrl url_;
  const int interrupt_;
  std::optional<AllowedOrigins> allowed_;  // set before the first request
  Sessions sessions_;
  Sources sources_;
  std::optional<MetricSampler> sampler_;
  std::mutex mutex_;
  LoginLimit limit_;  // guarded
  std::atomic<int> logging_in_ = 0;
  httplib::Server server_;
  std::thread thread_;
};

ConsoleServer::ConsoleServer(const ConsoleOptions& options, const PublicUrl& url, int interrupt)
    : impl_(std::make_unique<Impl>(options, url, interrupt)) {}
ConsoleServer::~ConsoleServer() = default;

int ConsoleServer::Listen(const OwnAddress& address) { return impl_->Listen(address); }
void ConsoleServer::EndOldSessions() { impl_->EndOldSessions(); }
void ConsoleServer::Stop() { impl_->Stop(); }

}  // namespace postbox::cli
