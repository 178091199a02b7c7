// The versions of the events of a statement that has more of them than are stored at a time
// (emit_changes.cc).
//
// Rule: whatever the order of the rows, a statement locks the counter's rows of all of its keys in
// the order of the keys, and before its first event is stored. So two statements that have keys in
// common do not wait for each other: what waits for a key has none behind it.
//
//  1. Add() gets the key of each event. The keys are sorted, by their bytes.
//  2. Count() counts the events of each key, in that order, and sorts the versions again, by the
//     places of the events.
//  3. Next() returns the version of each event in the order in which they were added.
//
// Both sorts keep work_mem in memory, and have files beyond that.
#ifndef POSTBOX_EXTENSION_EMIT_STATEMENT_VERSIONS_H_
#define POSTBOX_EXTENSION_EMIT_STATEMENT_VERSIONS_H_

#include "extension/emit/store_event.h"

extern "C" {
#include <utils/tuplesort.h>
}

namespace postbox {

class StatementVersions {
 public:
  // A text that is not toasted.
  void Add(Datum key);
  bool empty() const { return added_ == 0; }

  // `common` is what the events have in common. `are_new`: it is likely that none of the keys has
  // been counted before; set to whether that was so. Throws what counting one event may.
  void Count(Outbox* outbox, const EmittedEvent& common, bool* are_new);

  // Throws if the key is not the one that was added for this event.
  int64 Next(std::string_view key);

  // To be called at the end. After an error PostgreSQL has done it.
  void Close();

 private:
  // Rows in order of their first columns.
  class Sort {
   public:
    void Begin(std::span<const Oid> types, int keys);
    void Put(std::span<const Datum> values);
    void EndOfRows();
    // The next row, until the next call; false behind the last one.
    bool Get(std::span<Datum> values);
    void Close();

   private:
    Tuplesortstate* state_ = nullptr;
    TupleTableSlot* row_ = nullptr;    // for what is put
    TupleTableSlot* found_ = nullptr;  // for what is got
  };

  Sort keys_;      // key, place
  Sort versions_;  // place, version, hash of the key
  int64 added_ = 0;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_STATEMENT_VERSIONS_H_
