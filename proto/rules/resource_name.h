// Names of topics, subscriptions and schemas: the rules of Pub/Sub, the naming convention, and the
// completion of a short id with a project.
//
// Plain header: standard library only. A name is either a short id ("catalog.video.events") or a
// full resource name ("projects/shop/topics/catalog.video.events"). A name that Pub/Sub refuses is
// an error. A name that does not follow the convention gets a warning. The convention is
// <domain>.<aggregate>.<category> for a topic, <topic>.<service>-<role> for a subscription, and
// <topic>.dlq for a dead-letter topic.
//
// Every check returns a lower-case phrase that names the broken rule, or the empty string.

#ifndef POSTBOX_PROTO_RULES_RESOURCE_NAME_H_
#define POSTBOX_PROTO_RULES_RESOURCE_NAME_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rules/limits.h"
#include "proto/rules/utf8.h"

namespace postbox::pubsub {

namespace internal {

constexpr bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Splits projects/<project>/<collection>/<id>. False if `name` is not a full name of this
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

// One part of a conventional name: lower-case letters, digits and hyphens, with a letter first and
// no hyphen last.
constexpr bool IsConventionalPart(std::string_view part) {
  if (part.empty() || part.front() < 'a' || part.front() > 'z' || part.back() == '-') return false;
  for (const char c : part) {
    if (!((c >= 'a' && c <= 'z') || IsDigit(c) || c == '-')) return false;
  }
  return true;
}

inline std::string_view ShortId(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// The number of parts between dots, or 0 if a part is not conventional. Sets `*last` to the last
// part.
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

// The rule of Pub/Sub for the last part of a name. The error text begins with `kind`, "topic" or
// "subscription".
inline std::string CheckResourceId(std::string_view kind, std::string_view id) {
  const std::string subject = std::string(kind) + " id " + Shown(id, kMaxResourceIdLength) + " ";
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

// The form of a project id or number. Google's rule is stricter (6..30 lower-case characters), but
// emulators take other ids of this form.
inline std::string CheckProjectId(std::string_view project) {
  if (project.empty()) return "no project id is given";
  bool good = project.size() <= 100;
  for (const char c : project) {
    good = good && (internal::IsLetter(c) || internal::IsDigit(c) ||
                    std::string_view("-_.:").find(c) != std::string_view::npos);
  }
  return good ? ""
              : "project id " + Shown(project, 100) + " is not valid (letters, digits and hyphens)";
}

namespace internal {

inline std::string CheckName(std::string_view kind, std::string_view collection,
                             std::string_view name) {
  if (name.empty()) return std::string(kind) + " name is empty";
  if (!IsFullResourceName(name)) {
    if (name.find('/') != std::string_view::npos) {
      return std::string(kind) + " name " + Shown(name, kMaxTopicNameBytes) +
             " is neither an id nor of the form projects/PROJECT/" + std::string(collection) +
             "/ID";
    }
    return CheckResourceId(kind, name);
  }
  std::string_view project;
  std::string_view id;
  if (!SplitFullName(name, collection, &project, &id)) {
    return std::string(kind) + " name " + Shown(name, kMaxTopicNameBytes) +
           " is not of the form projects/PROJECT/" + std::string(collection) + "/ID";
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

// The rules of Pub/Sub for the name of a topic, subscription or schema, which is an id or a full
// name.
inline std::string CheckTopicName(std::string_view name) {
  return internal::CheckName("topic", "topics", name);
}
inline std::string CheckSubscriptionName(std::string_view name) {
  return internal::CheckName("subscription", "subscriptions", name);
}
inline std::string CheckSchemaName(std::string_view name) {
  return internal::CheckName("schema", "schemas", name);
}

// The full name. A full name is returned as it is. A short id is completed with the project, which
// must have passed CheckProjectId.
inline std::string TopicName(std::string_view project, std::string_view name) {
  return internal::FullName(project, "topics", name);
}
inline std::string SubscriptionName(std::string_view project, std::string_view name) {
  return internal::FullName(project, "subscriptions", name);
}
inline std::string SchemaName(std::string_view project, std::string_view name) {
  return internal::FullName(project, "schemas", name);
}

// The convention is three parts in lower case; a dead-letter topic has dlq as a fourth part.
inline std::string CheckTopicConvention(std::string_view name) {
  const std::string_view id = internal::ShortId(name);
  std::string_view last;
  const std::size_t parts = internal::ConventionalParts(id, &last);
  if (parts == 3 || (parts == 4 && last == "dlq")) return "";
  return "topic id " + Shown(id, kMaxResourceIdLength) +
         " does not follow the convention <domain>.<aggregate>.<category>, for example "
         "catalog.video.events";
}

// The convention is <topic>.<service>-<role>. For a subscription of a dead-letter topic it is
// <topic>.dlq-<role> or <topic>.dlq.<service>-<role>.
inline std::string CheckSubscriptionConvention(std::string_view name) {
  const std::string_view id = internal::ShortId(name);
  std::string_view last;
  const std::size_t parts = internal::ConventionalParts(id, &last);
  if (last.find('-') != std::string_view::npos) {
    if (parts == 4) return "";
    if (parts == 5 && CheckTopicConvention(id.substr(0, id.rfind('.'))).empty()) return "";
  }
  return "subscription id " + Shown(id, kMaxResourceIdLength) +
         " does not follow the convention <topic>.<service>-<role>, for example "
         "catalog.video.events.search-indexer";
}

namespace internal {

// The words of an id in lower case: "VideoEvents2" and "video_events-2" are video, events-2. A word
// begins with a letter.
inline std::vector<std::string> WordsOf(std::string_view id) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (word.empty()) return;
    if (IsDigit(word.front()) && !words.empty()) {
      words.back() += "-" + word;
    } else {
      words.push_back(word);
    }
    word.clear();
  };
  bool after_lower = false;
  for (const char c : id) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && after_lower) end();
    if (IsLetter(c) || IsDigit(c)) {
      word += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else {
      end();
    }
    after_lower = (c >= 'a' && c <= 'z') || IsDigit(c);
  }
  end();
  return words;
}

inline std::string Joined(const std::vector<std::string>& words, std::size_t begin,
                          std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += (i == begin ? "" : "-") + words[i];
  return text;
}

// The parts between dots, each in the form of the convention; none if a part has no word.
inline std::vector<std::string> RepairedParts(std::string_view id) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t dot = id.find('.');
    const std::vector<std::string> words = WordsOf(id.substr(0, dot));
    if (words.empty() || !IsConventionalPart(words.front())) return {};
    parts.push_back(Joined(words, 0, words.size()));
    if (dot == std::string_view::npos) return parts;
    id.remove_prefix(dot + 1);
  }
}

}  // namespace internal

// An id that follows the convention, with the words of this one. What it cannot know stands in
// angle brackets: <domain>.video.events.
inline std::string BetterTopicId(std::string_view name) {
  const std::string_view id = internal::ShortId(name);
  if (const std::vector<std::string> parts = internal::RepairedParts(id); !parts.empty()) {
    std::string repaired;
    for (const std::string& part : parts) repaired += (repaired.empty() ? "" : ".") + part;
    if (CheckTopicConvention(repaired).empty()) return repaired;
  }
  std::vector<std::string> words = internal::WordsOf(id);
  const bool dead_letters = !words.empty() && words.back() == "dlq";
  if (dead_letters) words.pop_back();
  std::string better;
  if (words.size() >= 3) {
    better =
        words.front() + "." + internal::Joined(words, 1, words.size() - 1) + "." + words.back();
  } else if (words.size() == 2 && words.back() == "events") {
    better = "<domain>." + words.front() + ".events";
  } else if (words.size() == 2) {
    better = words.front() + "." + words.back() + ".events";
  } else {
    better = "<domain>." + (words.empty() ? "<aggregate>" : words.front()) + ".events";
  }
  return better + (dead_letters ? ".dlq" : "");
}

// The same for a subscription of this topic: what the id says beyond the topic becomes service and
// role.
inline std::string BetterSubscriptionId(std::string_view name, std::string_view topic) {
  const std::string_view topic_id = internal::ShortId(topic);
  const std::vector<std::string> topic_words = internal::WordsOf(topic_id);
  std::vector<std::string> words = internal::WordsOf(internal::ShortId(name));
  if (words.size() >= topic_words.size() &&
      std::equal(topic_words.begin(), topic_words.end(), words.begin())) {
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(topic_words.size()));
  }
  std::string last = internal::Joined(words, 0, words.size());
  if (words.empty()) last = "<service>";
  if (words.size() < 2) last += "-reader";
  return (CheckTopicConvention(topic).empty() ? std::string(topic_id) : BetterTopicId(topic)) +
         "." + last;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_RESOURCE_NAME_H_
