// Events of a log's rows, made while the statement runs that finds them: no row is copied, and none
// has its own exception frame.
//
// This is for plain rows: nothing in them is NULL, compressed or stored elsewhere, and text is
// UTF-8 as it is. Reading such a row raises no error, and it is no larger than a page, so it is not
// counted before it is read. The first row that is not plain ends the reading. RowReader
// (event_rows.h) has the way for all others.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PLAIN_ROWS_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PLAIN_ROWS_H_

#include "worker/publisher/source/byte_budget.h"
#include "worker/publisher/source/event_rows.h"

extern "C" {
#include <tcop/dest.h>
}

namespace postbox::publisher {

class PlainRows {
 public:
  // Appends at most `limit` events to `events`. All of these must outlive the object.
  PlainRows(std::string_view topic, const Ordering& ordering, std::size_t limit, ByteBudget* budget,
            Events* events);
  ~PlainRows();
  PlainRows(const PlainRows&) = delete;
  PlainRows& operator=(const PlainRows&) = delete;

  // Whether there are plain rows in this database at all.
  static bool Possible();

  // For a statement with the columns of an event (CheckEventColumns()) in the order of seq.
  DestReceiver* receiver() { return &receiver_.base; }
  // After the statement: throws what has gone wrong. True: rows were left, all of them above the
  // seq of the last event. Rows of one seq are taken together or left together.
  bool Ended();

 private:
  struct Receiver {
    DestReceiver base;
    PlainRows* rows;
  };

  static PlainRows& Of(DestReceiver* receiver) {
    return *reinterpret_cast<Receiver*>(receiver)->rows;
  }
  // Inside Pg(). False: the statement is to end.
  bool Take(TupleTableSlot* slot);
  // What is raised in these waits for Ended(), since the caller is no C++.
  bool Add(const StoredRow& row) noexcept;
  bool StopBefore(std::int64_t seq) noexcept;

  const std::string_view topic_;
  const Ordering& ordering_;
  const std::size_t limit_;  // how many events there are at most
  ByteBudget* const budget_;
  Events& events_;
  const std::size_t first_;  // how many there were before
  Receiver receiver_{};
  MemoryContext memory_ = nullptr;  // of a row
  bool readable_ = false;           // the columns are those of an event
  bool stopped_ = false;
  std::size_t bytes_ = 0;    // of the events
  std::size_t refused_ = 0;  // of the event for which the budget has no room
  std::exception_ptr thrown_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PLAIN_ROWS_H_
