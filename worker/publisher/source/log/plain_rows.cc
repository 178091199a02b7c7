// See plain_rows.h.
#include "worker/publisher/source/log/plain_rows.h"

extern "C" {
#include <mb/pg_wchar.h>
}

namespace postbox::publisher {

PlainRows::PlainRows(std::string_view topic, const Ordering& ordering, std::size_t limit,
                     ByteBudget* budget, Events* events)
    : topic_(topic),
      ordering_(ordering),
      limit_(events->size() + limit),
      budget_(budget),
      events_(*events),
      first_(events->size()) {
  receiver_.rows = this;
  receiver_.base.mydest = DestNone;
  receiver_.base.rStartup = [](DestReceiver* receiver, int /*operation*/, TupleDesc descriptor) {
    Of(receiver).readable_ = HasEventColumns(descriptor);
  };
  receiver_.base.receiveSlot = [](TupleTableSlot* slot, DestReceiver* receiver) {
    return Of(receiver).Take(slot);
  };
  receiver_.base.rShutdown = [](DestReceiver* /*receiver*/) {};
  receiver_.base.rDestroy = [](DestReceiver* /*receiver*/) {};
  events_.reserve(limit_);
  Pg([&] {
    memory_ =
        AllocSetContextCreate(CurrentMemoryContext, "postbox plain rows", ALLOCSET_DEFAULT_SIZES);
  });
}

PlainRows::~PlainRows() { MemoryContextDelete(memory_); }

bool PlainRows::Possible() { return GetDatabaseEncoding() == PG_UTF8; }

bool PlainRows::Ended() {
  if (thrown_) std::rethrow_exception(thrown_);
  if (events_.size() > first_) {
    budget_->Take(bytes_);
    if (refused_ > 0) budget_->Refuse(refused_);
  }
  return stopped_;
}

bool PlainRows::Take(TupleTableSlot* slot) {
  slot_getallattrs(slot);
  if (!readable_ || slot->tts_isnull[0]) return StopBefore(0);
  const std::int64_t seq = DatumGetInt64(slot->tts_values[0]);
  if (events_.size() >= limit_) return StopBefore(seq);
  const MemoryContext before = MemoryContextSwitchTo(memory_);
  StoredRow row;
  const bool plain = ReadPlainRow(slot, &row);
  const bool goes_on = plain ? Add(row) : StopBefore(seq);
  MemoryContextSwitchTo(before);
  MemoryContextReset(memory_);
  return goes_on;
}

bool PlainRows::Add(const StoredRow& row) noexcept {
  try {
    EventPointer event = MakeEvent(row, topic_, ordering_);
    const std::size_t bytes = event->bytes();
    if (bytes_ + bytes > (bytes_ == 0 ? budget_->next() : budget_->left())) {
      refused_ = bytes;
      return StopBefore(row.seq);
    }
    bytes_ += bytes;
    events_.push_back(std::move(event));
    return true;
  } catch (...) {
    thrown_ = std::current_exception();
    return false;
  }
}

bool PlainRows::StopBefore(std::int64_t seq) noexcept {
  stopped_ = true;
  while (events_.size() > first_ && events_.back()->seq == seq) {
    bytes_ -= events_.back()->bytes();
    events_.pop_back();
  }
  return false;
}

}  // namespace postbox::publisher
