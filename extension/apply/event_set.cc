#include "extension/apply/event_set.h"

namespace postbox {

EventSet::EventSet(ApplySession* session)
    : session_(session), context_(Pg([] {
        return AllocSetContextCreate(CurrentMemoryContext, "postbox events",
                                     ALLOCSET_DEFAULT_SIZES);
      })) {}

// The projection that takes the event, if nothing else does and it writes sets.
Projection* EventSet::ProjectionFor(const InboxEvent& event) const {
  if (event.IsNull(EventField::kEventType)) return nullptr;
  const Route* route = inbox_->routes().Of(event.event_type);
  if (route == nullptr || !route->Fits() || !route->handlers.empty() ||
      route->projections.size() != 1 || route->projections[0].deletes) {
    return nullptr;
  }
  Projection* projection = route->projections[0].projection;
  return projection->TakesSetWith(event) ? projection : nullptr;
}

bool EventSet::Take(InboxEvent* event, Outcome* outcome) {
  if (session_->shared_inbox() != inbox_) {
    Write();
    inbox_ = session_->shared_inbox();
  }
  Projection* projection = ProjectionFor(*event);
  if (projection != projection_ || rows_.size() == kMostRows) Write();
  if (projection == nullptr) return false;
  // The event before may have changed them.
  if (projection_ == nullptr && inbox_->runs_user_code()) session_->PinEffects();
  projection_ = projection;
  PayloadJson payload(*event);
  const BoundValues bound =
      NamingEvent(*event, *inbox_, [&] { return projection->BindRow(*event, &payload); });
  if (projection->set()->Takes(bound)) {
    Add(event, outcome, bound);
    return true;
  }
  Write();
  *outcome = NamingEvent(*event, *inbox_, [&] { return projection->WriteRow(*event, bound); });
  return true;
}

void EventSet::Add(InboxEvent* event, Outcome* outcome, const BoundValues& bound) {
  MemoryContext outer = MemoryContextSwitchTo(context_);
  Row& row = rows_.emplace_back(Row{event, outcome, projection_->set()->Copy(bound)});
  const std::string_view key = projection_->key().View(row.bound);
  MemoryContextSwitchTo(outer);
  const auto [found, is_new] = chains_.try_emplace(key, Chain{&row, &row});
  Chain& chain = found->second;
  if (is_new) chain.hash = projection_->HashOf(key);
  row.chain = &chain;
  if (event->version() > chain.last->event->version()) chain.last = &row;
  row.newer = chain.last == &row;
}

void EventSet::Write() {
  if (projection_ == nullptr) return;
  if (rows_.size() > 1) {
    try {
      WriteRows();
    } catch (PostgresError& error) {
      AddContext(&error, "applying events to inbox " + inbox_->name());
      throw;
    }
  }
  for (Row& row : rows_) {
    *row.outcome = NamingEvent(*row.event, *inbox_, [&] { return OutcomeOf(row); });
  }
  chains_.clear();
  rows_.clear();
  projection_ = nullptr;
  MemoryContextReset(context_);
}

void EventSet::WriteRows() {
  std::vector<Chain*> all, longer;
  for (auto& [key, chain] : chains_) all.push_back(&chain);
  WriteOne(all, &Chain::first, &Chain::first_written);
  std::copy_if(all.begin(), all.end(), std::back_inserter(longer), [](const Chain* chain) {
    return chain->first_written && chain->last != chain->first;
  });
  WriteOne(longer, &Chain::last, &Chain::last_written);
}

// Writes one row of each of the chains.
void EventSet::WriteOne(const std::vector<Chain*>& chains, Row* Chain::*row,
                        bool Chain::*is_written) {
  if (chains.empty()) return;
  std::vector<const BoundValues*> rows;
  for (const Chain* chain : chains) rows.push_back(&(chain->*row)->bound);
  const std::vector<bool> written = projection_->WriteSet(rows);
  for (size_t i = 0; i < chains.size(); ++i) chains[i]->*is_written = written[i];
}

Outcome EventSet::OutcomeOf(const Row& row) {
  const Chain& chain = *row.chain;
  const bool is_later = &row == chain.last && &row != chain.first;
  if (!chain.first_written || (is_later && !chain.last_written)) {
    return projection_->WriteRow(*row.event, row.bound);
  }
  return projection_->Noted(*row.event, chain.hash,
                            row.newer ? Outcome::kApplied : Outcome::kStale);
}

}  // namespace postbox
