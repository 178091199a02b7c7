// Consecutive events of a batch that one projection takes, and nothing else, are written together:
// a statement for hundreds of rows costs less than hundreds of statements. Targets where that is
// the same as one event after the other are told by set_target.h.
//
// Of the events of one key the first and the last version are written, and those in between are
// not: no later event of the set needs them. The outcomes are those of one event after the other,
// which need the version that was stored before:
//
//  1. The first event of each key is written, in one statement, if the stored row is older. Now the
//     row is locked, and whether the first event was newer is known. If it was, so is each event
//     that is newer than all of its key before it; the others are stale.
//  2. The last of these is written, likewise for all keys in one statement.
//  3. Where the first event was not written, the events of its key are applied one by one: what
//     does not find an older row has to find one that is as new (projection.h).
//
// The keys are written in one order in all sessions, so that two sets with the same keys wait for
// each other, and do not deadlock.
//
// Memory: what a set holds is at most kMostRows rows of the size that RowSet takes. Larger ones,
// and those that lack columns, are applied alone, in their turn.
#ifndef POSTBOX_EXTENSION_APPLY_EVENT_SET_H_
#define POSTBOX_EXTENSION_APPLY_EVENT_SET_H_

#include "extension/apply/apply.h"

namespace postbox {

class EventSet {
 public:
  explicit EventSet(ApplySession* session);

  // Applies the event, now or with Write(), which sets its outcome; both must live until then.
  // False if it cannot be part of a set: all events before it are written then.
  bool Take(InboxEvent* event, Outcome* outcome);

  // Writes what has been taken.
  void Write();

 private:
  static constexpr size_t kMostRows = 1000;

  struct Row;
  // The rows of one key.
  struct Chain {
    Row* first;
    Row* last;  // of those that are newer than all before them
    uint32 hash = 0;
    bool first_written = false;
    bool last_written = false;
  };
  struct Row {
    InboxEvent* event;
    Outcome* outcome;
    BoundValues bound;
    Chain* chain = nullptr;
    bool newer = false;  // than all before it in its chain
  };

  Projection* ProjectionFor(const InboxEvent& event) const;
  void Add(InboxEvent* event, Outcome* outcome, const BoundValues& bound);
  void WriteRows();
  void WriteOne(const std::vector<Chain*>& chains, Row* Chain::*row, bool Chain::*is_written);
  Outcome OutcomeOf(const Row& row);

  ApplySession* const session_;
  MemoryContext context_;  // of all that is taken
  std::shared_ptr<Inbox> inbox_;
  Projection* projection_ = nullptr;  // whose events these are; nullptr if there are none
  std::deque<Row> rows_;
  std::map<std::string_view, Chain> chains_;  // by the text of the key
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_EVENT_SET_H_
