#include "worker/cli/console/api.h"

#include <map>

#include "worker/cli/console/actions.h"
#include "worker/cli/console/event_way.h"
#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

using Read = Answer (*)(Session*, const Arguments&);
using Act = Answer (*)(Session*, const JsonValue&);

const std::map<std::string, Read>& Reads() {
  static const auto& reads =
      *new std::map<std::string, Read>{{"overview", ReadOverview},
                                       {"findings", ReadFindings},
                                       {"parked-keys", ReadParkedKeys},
                                       {"dead-letters", ReadDeadLetters},
                                       {"dead-letter", ReadDeadLetter},
                                       {"dead-letters/count", CountDeadLetters},
                                       {"event", ReadEventWay},
                                       {"actions", ReadActions},
                                       {"lanes", ReadLanes}};
  return reads;
}

const std::map<std::string, Act>& Acts() {
  static const auto& acts = *new std::map<std::string, Act>{
      {"change", ChangeState}, {"events", ActOnEvents}, {"preview", PreviewAll}, {"all", ActOnAll}};
  return acts;
}

}  // namespace

Answer AnswerGet(Session* session, Sources* sources, const std::string& path,
                 const Arguments& arguments) {
  if (path == "charts") return ReadCharts(session, *sources, arguments);
  if (path == "provision") return ReadDifferences(session, sources);
  if (path == "publications") return ReadPublications(session, *sources, arguments);
  if (const auto found = Reads().find(path); found != Reads().end()) {
    return found->second(session, arguments);
  }
  if (const char* query = ListQuery(path)) return ReadList(session, query, arguments);
  return Refuse(404, "there is no such path");
}

Answer AnswerPost(Session* session, Sources* sources, const std::string& path,
                  const JsonValue& order) {
  if (path == "seek") return ActSeek(session, sources, order);
  if (path == "preview" && TextMember(order, "action") == "seek") {
    return PreviewSeek(session, sources, order);
  }
  const auto found = Acts().find(path);
  if (found == Acts().end()) return Refuse(404, "there is no such path");
  return found->second(session, order);
}

}  // namespace postbox::cli
