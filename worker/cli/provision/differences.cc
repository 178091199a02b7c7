#include "worker/cli/provision/differences.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "worker/cli/provision/database_file.h"
#include "worker/cli/provision/remote.h"

namespace postbox::cli {
namespace {

constexpr char kFormat[] = "docs/guides/provision.md describes the format";
constexpr char kFromDatabase[] =
    "run postbox provision --from-database --file FILE, complete the file, and run postbox "
    "provision --file FILE";

// What the text of a database leaves open is not compared. It is told instead.
void TakeOut(Json* document, std::vector<Difference>* rows) {
  if (document->value("project", Json("")) == Json("")) document->erase("project");
  if (!document->contains("subscriptions")) return;
  Json known = Json::array();
  for (const Json& one : (*document)["subscriptions"]) {
    if (one.value("topic", Json("")) != Json("")) {
      known.push_back(one);
      continue;
    }
    rows->push_back({"unknown", "subscription", one.value("name", ""),
                     "its topic is not in the database, and its name does not show it: it is not "
                     "compared",
                     "pass --provision-file with a file that names the topic"});
  }
  (*document)["subscriptions"] = known;
}

std::optional<Json> DocumentOf(const PlaceOptions& place, const std::string& file,
                               Differences* found) {
  std::optional<std::string> text;
  if (file.empty()) {
    const auto resources = ReadDatabase(place, &found->failure);
    std::vector<std::string> warnings;
    if (resources) text = DatabaseFileText(*resources, &warnings);
  } else {
    text = ReadProvisionFile(file, &found->failure);
  }
  if (!text) return std::nullopt;
  std::string error;
  auto document = ParseDocument(file, *text, &error);
  if (!document) found->failure = {file + ": " + error, kFormat};
  if (document && file.empty()) TakeOut(&*document, &found->rows);
  return document;
}

std::string ChangesText(const Step& step) {
  if (step.kind == Step::kCreate) return "is missing";
  std::string text;
  for (const Change& one : step.changes) {
    text += (text.empty() ? "" : "; ") + one.key + ": ";
    text += one.from.empty() ? one.to : one.from + " -> " + one.to;
  }
  return text;
}

void AddRows(const Plan& plan, const std::string& remedy, std::vector<Difference>* rows) {
  for (const Objection& one : plan.refusals) {
    rows->push_back({"refused", "", one.name, one.reason, one.remedy});
  }
  for (const Step& step : plan.steps) {
    rows->push_back({step.kind == Step::kCreate ? "create" : "update", step.what, step.name,
                     ChangesText(step), remedy});
  }
  for (const Objection& one : plan.unsupported) {
    rows->push_back({"unsupported", "", one.name, one.reason,
                     "--skip-unsupported of postbox provision leaves it out"});
  }
}

}  // namespace

std::optional<std::string> ReadProvisionFile(const std::string& name, Failure* failure) {
  std::ifstream file;
  if (name != "-") file.open(name, std::ios::binary);
  std::istream& stream = name == "-" ? std::cin : file;
  std::string text;
  std::vector<char> block(65536);
  while (stream && text.size() <= kMaxDocumentBytes) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block.data(), static_cast<size_t>(stream.gcount()));
  }
  if (name != "-" && (!file.is_open() || file.bad())) {
    *failure = {name + " cannot be read", "check the name and the permissions of the file"};
    return std::nullopt;
  }
  return text;
}

Differences FindDifferences(const PlaceOptions& place, const std::string& file,
                            std::chrono::seconds time) {
  const auto end = std::chrono::system_clock::now() + time;
  Differences found;
  const auto document = DocumentOf(place, file, &found);
  if (!document) return found;
  PlaceOptions told = place;
  told.file_project = ProjectOf(*document);
  const auto broker = Connect(told, &found.failure);
  if (!broker) return found;
  broker->admin->SetEnd(end);
  Problems problems(file);
  const Desired desired = ReadDesired(
      *document, broker->project, std::filesystem::path(file).parent_path().string(), &problems);
  if (!problems.lines().empty()) {
    found.failure = {problems.lines().front(), kFormat};
    return found;
  }
  Actual actual;
  const CallResult result = Remote(broker->admin.get()).Read(desired, &actual);
  if (!result.ok()) {
    found.failure = {result.subject + ": " + StatusText(result.status),
                     RemedyOf(result.status.error_code())};
    return found;
  }
  AddRows(MakePlan(desired, actual),
          file.empty() ? kFromDatabase : "run postbox provision --file " + file, &found.rows);
  return found;
}

}  // namespace postbox::cli
