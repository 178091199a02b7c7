// Names of topics and subscriptions: completion of a short id with a project, Pub/Sub's own rules,
// the naming convention.
//
// Plain header: standard library only. A name is either a short id ("catalog.video.events") or a
// full resource name ("projects/shop/topics/catalog.video.events"). What Pub/Sub itself refuses is
// an error; the convention (topic <domain>.<aggregate>.<category>, subscription
// <topic>.<service>-<role>, dead-letter topic <topic>.dlq) is a warning.
//
// Every check returns the empty string if all is well, else one lower-case sentence that names the
// rule.

#ifndef POSTBOX_PROTO_RULES_RESOURCE_NAME_H_
#define POSTBOX_PROTO_RULES_RESOURCE_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/rules/limits.h"

namespace postbox::pubsub {

namespace internal {

constexpr bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// projects/<project>/<collection>/<id>. False if `name` is no full name at all or one of another
// collection.
inline bool SplitFullName(std::string_view name, std::string_view collection,
                          std::string_view* project, std::string_view* id) {
  constexpr std::string_view kProjects = "projects/";
  if (!name.starts_with(kProjects)) return false;
  name.remove_prefix(kProjects.size());
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  *project = name.substr(0, slash);
  name.remove_prefix(slash + 1);
  if (!name.starts_with(collection) || name.size() <= collection.size() ||
      name[collection.size()] != '/')
    return false;
  *id = name.substr(collection.size() + 1);
  return true;
}

// Lower-case letters, digits and hyphens, beginning with a letter: one part of a conventional name.
constexpr bool IsConventionalPart(std::string_view part) {
  if (part.empty() || part.front() < 'a' || part.front() > 'z' || part.back() == '-') return false;
  for (const char c : part) {
    if (!((c >= 'a' && c <= 'z') || IsDigit(c) || c == '-')) return false;
  }
  return true;
}

inline std::string_view ShortId(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// Splits at dots; returns the number of parts, or 0 if a part is not conventional.
inline std::size_t ConventionalParts(std::string_view id, std::string_view* last) {
  std::size_t parts = 0;
  while (true) {
    const std::size_t dot = id.find('.');
    *last = id.substr(0, dot);
    if (!IsConventionalPart(*last)) return 0;
    ++parts;
    if (dot == std::string_view::npos) return parts;
    id.remove_prefix(dot + 1);
  }
}

}  // namespace internal

inline bool IsFullResourceName(std::string_view name) { return name.starts_with("projects/"); }

// Pub/Sub's rule for the last part of a name. `kind` ("topic" or "subscription") begins the error
// text.
inline std::string CheckResourceId(std::string_view kind, std::string_view id) {
  const std::string subject =
      std::string(kind) + " id \"" + std::string(id.substr(0, kMaxResourceIdLength)) + "\" ";
  if (id.size() < kMinResourceIdLength || id.size() > kMaxResourceIdLength) {
    return subject + "has " + std::to_string(id.size()) + " characters, Pub/Sub allows " +
           std::to_string(kMinResourceIdLength) + " to " + std::to_string(kMaxResourceIdLength);
  }
  if (!internal::IsLetter(id.front())) return subject + "does not start with a letter";
  for (const char c : id) {
    if (!internal::IsLetter(c) && !internal::IsDigit(c) &&
        std::string_view("-_.~+%").find(c) == std::string_view::npos) {
      return subject +
             "has a character that Pub/Sub does not allow (allowed are letters, digits and - _ . ~ "
             "+ %)";
    }
  }
  if (id.starts_with(kReservedPrefix))
    return subject + "starts with \"goog\", which Pub/Sub reserves";
  return "";
}

// A project id or number. Google's rule is stricter (6..30 lower-case characters); emulators take
// what has this form.
inline std::string CheckProjectId(std::string_view project) {
  if (project.empty()) return "no project id is given";
  bool good = project.size() <= 100;
  for (const char c : project) {
    good = good && (internal::IsLetter(c) || internal::IsDigit(c) ||
                    std::string_view("-_.:").find(c) != std::string_view::npos);
  }
  return good ? ""
              : "project id \"" + std::string(project.substr(0, 100)) +
                    "\" is not valid (letters, digits and hyphens)";
}

namespace internal {

inline std::string CheckName(std::string_view kind, std::string_view collection,
                             std::string_view name) {
  if (name.empty()) return std::string(kind) + " name is empty";
  if (!IsFullResourceName(name)) {
    if (name.find('/') != std::string_view::npos) {
      return std::string(kind) + " name \"" + std::string(name) +
             "\" is neither an id nor of the form projects/PROJECT/" + std::string(collection) +
             "/ID";
    }
    return CheckResourceId(kind, name);
  }
  std::string_view project;
  std::string_view id;
  if (!SplitFullName(name, collection, &project, &id)) {
    return std::string(kind) + " name \"" + std::string(name) +
           "\" is not of the form projects/PROJECT/" + std::string(collection) + "/ID";
  }
  std::string problem = CheckProjectId(project);
  return problem.empty() ? CheckResourceId(kind, id) : problem;
}

inline std::string FullName(std::string_view project, std::string_view collection,
                            std::string_view name) {
  if (IsFullResourceName(name)) return std::string(name);
  return "projects/" + std::string(project) + "/" + std::string(collection) + "/" +
         std::string(name);
}

}  // namespace internal

// A topic or subscription given as an id or in full: does Pub/Sub allow the name?
inline std::string CheckTopicName(std::string_view name) {
  return internal::CheckName("topic", "topics", name);
}
inline std::string CheckSubscriptionName(std::string_view name) {
  return internal::CheckName("subscription", "subscriptions", name);
}

// The full name. A name that is full already stays as it is; a short id needs a project
// (CheckProjectId).
inline std::string TopicName(std::string_view project, std::string_view name) {
  return internal::FullName(project, "topics", name);
}
inline std::string SubscriptionName(std::string_view project, std::string_view name) {
  return internal::FullName(project, "subscriptions", name);
}

// The convention: three parts in lower case; a dead-letter topic has .dlq as the fourth.
inline std::string CheckTopicConvention(std::string_view name) {
  const std::string_view id = internal::ShortId(name);
  std::string_view last;
  const std::size_t parts = internal::ConventionalParts(id, &last);
  if (parts == 3 || (parts == 4 && last == "dlq")) return "";
  return "topic id \"" + std::string(id) +
         "\" does not follow the convention <domain>.<aggregate>.<category>, for example "
         "catalog.video.events";
}

// The convention: <topic>.<service>-<role>; that of a dead-letter topic is <topic>.dlq-<role> or
// <topic>.dlq.<service>-<role>.
inline std::string CheckSubscriptionConvention(std::string_view name) {
  const std::string_view id = internal::ShortId(name);
  std::string_view last;
  const std::size_t parts = internal::ConventionalParts(id, &last);
  if (last.find('-') != std::string_view::npos) {
    if (parts == 4) return "";
    if (parts == 5 && CheckTopicConvention(id.substr(0, id.rfind('.'))).empty()) return "";
  }
  return "subscription id \"" + std::string(id) +
         "\" does not follow the convention <topic>.<service>-<role>, for example "
         "catalog.video.events.search-indexer";
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_RESOURCE_NAME_H_
