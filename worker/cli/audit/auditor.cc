#include "worker/cli/audit/auditor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "worker/cli/audit/ghosts.h"

namespace postbox::cli {
namespace {

using puller::Parameter;
using Clock = std::chrono::steady_clock;

constexpr size_t kIdsAtOnce = 1'000;
// Transactions of a puller commit within this time. What a longer one has received is looked up by
// an audit of everything.
constexpr int64_t kOverlap = 60 * kMicrosPerSecond;
constexpr int kMostRepeated = 100;
constexpr int64_t kMostHoles = 20;

// Calls `take` with some of the elements at a time.
template <class Element, class Take>
void InParts(const std::vector<Element>& elements, size_t most, Take&& take) {
  for (size_t first = 0; first < elements.size(); first += most) {
    const auto begin = elements.begin() + static_cast<ptrdiff_t>(first);
    const auto count = std::min(most, elements.size() - first);
    take(std::vector<Element>(begin, begin + static_cast<ptrdiff_t>(count)));
  }
}

std::vector<std::string> IdsOf(const auto& events) {
  std::vector<std::string> ids;
  for (const auto& event : events) ids.push_back(event.id);
  return ids;
}

// What an audit compares.
std::string ScopeOf(const AuditOptions& options) {
  std::string scope = options.rows ? "rows" : "no rows";
  if (!options.since.empty()) scope += ", since " + options.since;
  for (const std::string& type : options.event_types) scope += ", " + type;
  return scope;
}

std::optional<AuditState> StateBefore(const AuditOptions& options, const SourceState& source,
                                      const ReaderState& reader, AuditReport* report) {
  if (options.state.empty()) return std::nullopt;
  std::optional<AuditState> state = LoadState(options.state, source.identity, reader.identity);
  if (options.full || !state) return std::nullopt;
  std::string why;
  if (state->scope != ScopeOf(options)) {
    why = "the options are not those of the last audit";
  } else if (!source.history.Continues(state->source_history)) {
    why = "the source was restored or promoted since the last audit";
  } else if (!reader.history.Continues(state->reader_history)) {
    why = "the reader was restored or promoted since the last audit";
  }
  if (why.empty()) return state;
  report->Remark("everything is compared: " + why);
  return std::nullopt;
}

int64_t Since(const std::string& time, Side* source) {
  if (time.empty()) return 0;
  return source->Ask("SELECT postbox.micros($1::timestamptz)", {Parameter::Text(time)})
      .integer(0, 0);
}

std::string RowDetail(const ComparedRow& found) {
  if (found.problem == "missing") return "there is no row";
  if (found.problem == "present") return "the event deletes it, and the row is there";
  const std::string version = "the row has version " + std::to_string(found.stored_version);
  if (found.problem == "newer") return version + ", which was not emitted";
  if (found.problem == "older") return version;
  return "other values in " + found.details;
}

}  // namespace

Auditor::Auditor(const AuditOptions& options, AuditReport* report)
    : options_(options),
      report_(report),
      lock_(options.state),
      source_(options.source, options.publication),
      reader_(options.reader, options.subscription),
      before_(StateBefore(options, source_.source(), reader_.reader(), report)),
      since_(Since(options.since, &source_.side())),
      events_(NewComparison()),
      rows_(options.rows ? reader_.reader().targets : decltype(ReaderState::targets){}) {
  report_->SetSides(source_.side().database() + "/" + source_.source().publication,
                    reader_.side().database() + "/" + reader_.reader().subscription);
}

int64_t Auditor::ToReader(int64_t source_time) const {
  return source_time - source_.side().clock_offset() + reader_.side().clock_offset();
}

int64_t Auditor::ToSource(int64_t reader_time) const {
  return reader_time - (ToReader(reader_time) - reader_time);
}

int64_t Auditor::ClockDoubt() const {
  return source_.side().clock_doubt() + reader_.side().clock_doubt() + kMicrosPerSecond;
}

EventComparison Auditor::NewComparison() const {
  const ReaderState& reader = reader_.reader();
  const int64_t kept_from = ToSource(std::max(reader.created, reader.now - reader.retention));
  const int64_t recorded_from = std::max(source_.source().created, kept_from + ClockDoubt());
  return {recorded_from, before_ ? before_->captured : 0};
}

bool Auditor::Takes(const SourceEvent& event) const {
  const std::vector<std::string>& types = options_.event_types;
  if (!types.empty() && std::find(types.begin(), types.end(), event.event_type) == types.end()) {
    return false;
  }
  return since_ == 0 || TimeOf(event.id, event.occurred) >= since_;
}

void Auditor::LookAgain() {
  if (!before_) return;
  events_.Resume(before_->unsettled, before_->newest);
  rows_.Resume(before_->rows);
  InParts(events_.Unsettled(), kIdsAtOnce, [&](const std::vector<std::string>& ids) {
    const std::vector<SourceEvent> events = source_.Events(ids);
    events_.TakeAgain(ids, events, reader_.Received(ids));
  });
}

void Auditor::CompareRows(const std::vector<SourceEvent>& events) {
  for (size_t first = 0; first < events.size();) {
    const size_t count =
        std::min(SourceSide::Fitting(events, first), static_cast<size_t>(kIdsAtOnce));
    const auto begin = events.begin() + static_cast<ptrdiff_t>(first);
    const std::vector<SourceEvent> some(begin, begin + static_cast<ptrdiff_t>(count));
    rows_.Take(some, reader_.CompareRows(some, source_.Contents(some)));
    first += count;
  }
}

void Auditor::TakePage(const std::vector<SourceEvent>& page) {
  std::vector<SourceEvent> wanted;
  for (const SourceEvent& event : page) {
    if (Takes(event)) wanted.push_back(event);
  }
  compared_ += static_cast<int64_t>(wanted.size());
  if (wanted.empty()) return;
  const Arrivals arrivals = reader_.Received(IdsOf(wanted));
  events_.Take(wanted, arrivals);
  // The others, too, say which event of a key is the last one.
  CompareRows(rows_.Last(page, arrivals));
}

bool Auditor::ScanOrigin(int64_t origin, int64_t from, bool own) {
  Place at;
  at.place = from;
  while (true) {
    const std::vector<SourceEvent> page =
        source_.Page(origin, at.place, at.id, source_.source().upto);
    TakePage(page);
    if (!page.empty()) at = {page.back().place, page.back().id};
    if (rows_.crowded()) ThinDoubts();
    const bool last = page.size() < SourceSide::kPage;
    if (own && (last || events_.full())) {
      const bool full = events_.full();
      events_.LeaveOutTail();
      if (full && !events_.full()) return true;
    }
    if (events_.full() || rows_.full()) {
      stopped_ = at;
      return false;
    }
    if (last) return true;
  }
}

void Auditor::ThinDoubts() {
  for (const auto& [target, doubts] : rows_.ByTarget()) {
    std::vector<SourceEvent> events;
    for (const DoubtfulRow& doubt : doubts) events.push_back(doubt.event);
    const std::vector<int64_t> versions = source_.LastVersions(rows_.TypesOf(target), events);
    for (size_t i = 0; i < doubts.size(); ++i) {
      if (versions[i] > events[i].version.value_or(0)) rows_.Drop(doubts[i]);
    }
  }
  rows_.Thinned();
}

// The events of this cluster are those of the last origin.
void Auditor::Scan() {
  const std::vector<int64_t>& origins = source_.source().origins;
  for (const int64_t origin : origins) {
    const bool own = origin == origins.back();
    if (own) events_.AllowLeftOut();
    if (before_ && !own) continue;
    if (ScanOrigin(origin, before_ ? before_->place : 0, own)) continue;
    if (!own) stopped_ = Place{};
    report_->Add(Obstacle{"too_many",
                          "more than " + std::to_string(EventComparison::kMostUnsettled) +
                              " events or rows differ: the audit stopped there",
                          "see why the reader does not have them, and run the audit again"});
    return;
  }
}

// Up to where the events were compared, as far as that is known.
int64_t Auditor::LastPlace() const {
  const int64_t place = stopped_ ? stopped_->place : INT64_MAX;
  return std::min(place, events_.left_out().place);
}

void Auditor::WaitForArrivals() {
  const auto deadline = Clock::now() + std::chrono::seconds(options_.grace);
  auto pause = std::chrono::milliseconds(50);
  events_.BeginWait();
  while (true) {
    InParts(events_.Waiting(), kIdsAtOnce, [&](const std::vector<std::string>& ids) {
      const Arrivals arrivals = reader_.Received(ids);
      std::vector<std::string> there;
      std::vector<SourceEvent> events;
      for (const auto& [id, arrival] : arrivals) {
        there.push_back(id);
        events.push_back(events_.unsettled().at(id).event);
      }
      events_.TakeAgain(there, events, arrivals);
    });
    if (events_.Waiting().empty() || Clock::now() + pause > deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(1'000));
  }
  const ReaderState now = reader_.Now();
  const bool runs = now.puller == "connected" || now.puller == "not visible";
  events_.Finish(runs ? "" : now.puller, now.waiting_types);
}

// The rows are looked at before the outbox: an event that has changed one of them is then found.
// It may be below the last place that was read: it was not committed then.
void Auditor::SettleRows() {
  CompareRows(rows_.TakeDoubts());
  if (rows_.doubts().empty()) return;
  const SourceState now = source_.Now();
  Place at;
  at.place = std::min(source_.source().settled, source_.source().upto);
  at.place = std::min(at.place, LastPlace());
  while (true) {
    const std::vector<SourceEvent> page =
        source_.Page(now.origins.back(), at.place, at.id, now.upto);
    for (const SourceEvent& event : page) rows_.See(event);
    if (page.size() < SourceSide::kPage) break;
    at = {page.back().place, page.back().id};
  }
}

void Auditor::TakeArrivals(const std::vector<Arrival>& page,
                           const std::unordered_set<std::string>& emitted) {
  const int64_t from = source_.source().retained_from + ClockDoubt();
  const RetainedFrom retained{from, ToReader(from)};
  for (const Arrival& arrival : page) {
    if (!emitted.contains(arrival.id) && IsGhost(arrival, retained)) ghosts_[arrival.id] = arrival;
  }
}

void Auditor::FindGhosts() {
  const ReaderState reader = reader_.Now();
  arrived_ = reader.now;
  if (!reader.shared_with.empty()) {
    report_->NotCompared("ghosts: the inbox also has the events of subscription " +
                         reader.shared_with.front());
    return;
  }
  if (before_) {
    InParts(IdsOf(before_->ghosts), kIdsAtOnce, [&](const std::vector<std::string>& ids) {
      std::vector<Arrival> still;
      for (auto& [id, arrival] : reader_.Received(ids)) still.push_back(arrival);
      TakeArrivals(still, source_.Known(ids));
    });
  }
  const int64_t from = before_ ? before_->arrived - kOverlap
                               : ToReader(source_.source().retained_from) - ClockDoubt();
  const std::set<std::string>& types = source_.source().aggregate_types;
  int64_t after = from;
  std::string after_id = kFirstId;
  while (ghosts_.size() < EventComparison::kMostUnsettled) {
    const std::vector<Arrival> page = reader_.Page(after, after_id, arrived_);
    std::vector<Arrival> wanted;
    for (const Arrival& arrival : page) {
      if (types.empty() || types.contains(arrival.aggregate_type)) wanted.push_back(arrival);
    }
    if (!wanted.empty()) TakeArrivals(wanted, source_.Known(IdsOf(wanted)));
    if (page.size() < ReaderSide::kPage) return;
    after = page.back().received;
    after_id = page.back().id;
  }
}

void Auditor::FindRepeatedVersions() {
  if (before_) {
    report_->NotCompared("repeated versions: only an audit of everything looks for them");
    return;
  }
  const puller::QueryResult found = source_.side().Try(
      "SELECT r.aggregate_type, r.aggregate_id, r.version, r.event_ids "
      "FROM postbox.audit_repeated_versions($1, $2::int) r",
      {Parameter::Text(source_.source().publication),
       Parameter::Text(std::to_string(kMostRepeated))});
  // It reads the outbox at once, which may take too long.
  if (!found.ok()) {
    report_->Add(Obstacle{"failed", "repeated versions were not looked for: " + found.error(),
                          "see the server log of the source"});
    return;
  }
  for (int row = 0; row < found.rows(); ++row) {
    AuditFinding finding;
    finding.kind = "repeated_version";
    finding.detail = "several events have this version: " + found.text(row, 3);
    finding.event.aggregate_type = found.text(row, 0);
    finding.event.aggregate_id = found.text(row, 1);
    finding.event.version = found.integer(row, 2);
    report_->Add(std::move(finding));
  }
}

void Auditor::ReportEvents() {
  int64_t watermark = source_.source().now;
  if (source_.source().oldest) watermark = std::min(watermark, *source_.source().oldest);
  int64_t holes = 0;
  for (const auto& [id, unsettled] : events_.unsettled()) {
    const SourceEvent& event = unsettled.event;
    if (IsUnaccounted(unsettled.kind) && unsettled.kind != "unrecorded" && event.occurred > 0) {
      watermark = std::min(watermark, event.occurred);
    }
    if (unsettled.kind == "hole" && ++holes <= kMostHoles) {
      report_->Remark(TextOf(event) + " is a hole: " + unsettled.detail);
    }
    if (IsDifference(unsettled.kind)) {
      report_->Add(AuditFinding{unsettled.kind, event, "", unsettled.detail, ""});
    }
  }
  if (holes > kMostHoles) {
    report_->Remark(std::to_string(holes - kMostHoles) +
                    " more holes: see postbox.discarded_event of the reader");
  }
  // Of a table only what is published has a place; the others are counted.
  if (!source_.source().is_log && source_.source().parked > 0) {
    report_->Add(AuditFinding{"parked_at_source",
                              {},
                              "",
                              std::to_string(source_.source().parked) +
                                  " events are parked: see postbox.paused_keys of the source",
                              ""});
  }
  if (const BacklogLeft& left_out = events_.left_out(); left_out.count > 0) {
    if (left_out.occurred > 0) watermark = std::min(watermark, left_out.occurred);
    report_->Remark("events of a long backlog are left out until earlier ones are received");
  }
  if (!stopped_ && (before_ || compared_ > 0)) report_->SetWatermark(watermark);
}

// Those of earlier audits count as long as the outbox retains them.
void Auditor::ReportUnrecorded() {
  unrecorded_ = events_.unrecorded();
  if (before_ && before_->unrecorded.last >= source_.source().retained_from) {
    unrecorded_.count += before_->unrecorded.count;
    unrecorded_.last = std::max(unrecorded_.last, before_->unrecorded.last);
  }
  if (unrecorded_.count == 0) return;
  report_->Add(Obstacle{"recorded_later",
                        std::to_string(unrecorded_.count) +
                            " events occurred before the publication or the inbox was created, or "
                            "before what the inbox retains: they are not compared",
                        "leave them out with --since"});
}

void Auditor::Conclude() {
  compared_ -= events_.left_out().count;
  report_->SetScope(!before_, compared_, rows_.compared());
  report_->SetTally(events_.tally());
  ReportEvents();
  ReportUnrecorded();
  if (!source_.source().problem.empty()) {
    report_->Add(Obstacle{"backlog", "source: " + source_.source().problem,
                          "see postbox.publication_status of the source"});
  }
  for (const DoubtfulRow& doubt : rows_.doubts()) {
    report_->Add(AuditFinding{"row_" + doubt.found.problem, doubt.event, doubt.found.target,
                              RowDetail(doubt.found), ""});
  }
  for (const auto& [id, ghost] : ghosts_) {
    SourceEvent event;
    event.id = ghost.id;
    event.aggregate_type = ghost.aggregate_type;
    event.aggregate_id = ghost.aggregate_id;
    event.event_type = ghost.event_type;
    event.version = ghost.version;
    report_->Add(AuditFinding{"ghost", event, "", "the source has not emitted it", ""});
    report_->Count("ghost", TimeOf(id, 0));
  }
  if (!before_ && compared_ == 0 && ghosts_.empty()) {
    report_->Add(Obstacle{"nothing_to_compare", "the outbox has no event of the publication",
                          "check --source, --publication and --since"});
  }
  if (reader_.reader().puller == "not visible") {
    report_->NotCompared("whether a puller is running: the role may not see its reports");
  }
  for (const std::string& reason : rows_.reasons()) report_->NotCompared("rows: " + reason);
  report_->NotCompared(options_.rows
                           ? "rows of keys without a retained event; columns that the last event "
                             "of the key leaves out"
                           : "rows of projections");
}

void Auditor::Save() {
  if (options_.state.empty()) return;
  AuditState state{.source = source_.source().identity,
                   .reader = reader_.reader().identity,
                   .scope = ScopeOf(options_),
                   .source_history = source_.source().history,
                   .reader_history = reader_.reader().history,
                   .captured = source_.source().now,
                   .place = std::min(source_.source().settled, source_.source().upto),
                   .arrived = arrived_,
                   .newest = events_.newest(),
                   .unrecorded = unrecorded_,
                   .unsettled = {},
                   .rows = rows_.doubts(),
                   .ghosts = {}};
  for (const auto& [id, ghost] : ghosts_) state.ghosts.push_back(ghost);
  state.place = std::min(state.place, LastPlace());
  for (const auto& [id, unsettled] : events_.unsettled()) {
    if (unsettled.kind != "unrecorded") state.unsettled.push_back(unsettled);
  }
  SaveState(options_.state, state);
}

void Auditor::Run() {
  LookAgain();
  Scan();
  WaitForArrivals();
  SettleRows();
  FindGhosts();
  FindRepeatedVersions();
  Conclude();
  Save();
}

}  // namespace postbox::cli
