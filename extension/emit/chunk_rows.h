// The rows of a chunk of a backfill: found and locked as the owner of the backfill.
//
// Rule: a row of the chunk is as it is committed last, and stays so until the chunk commits. So the
// end of the chunk is looked for first, without locks, and then the rows up to it are locked: one
// whose key another transaction has changed meanwhile is in the chunk only if its new key is. (With
// LIMIT and locks in one statement, it would move the end of the chunk.) The lock is FOR SHARE: it
// keeps others from changing and deleting the row, and from nothing else.
#ifndef POSTBOX_EXTENSION_EMIT_CHUNK_ROWS_H_
#define POSTBOX_EXTENSION_EMIT_CHUNK_ROWS_H_

#include "extension/emit/backfill.h"

extern "C" {
#include <executor/tuptable.h>
}

namespace postbox {

class ChunkRows {
 public:
  // Needs SPI and FixedSearchPath, which are those of all calls. `table`: open.
  ChunkRows(const Backfill& backfill, Relation table);
  // After an error PostgreSQL has released what this object holds.
  ~ChunkRows() = default;
  ChunkRows(const ChunkRows&) = delete;
  ChunkRows& operator=(const ChunkRows&) = delete;

  // Locks the next rows, at most so many. False if there are none up to the bound.
  bool Lock(int most);

  uint64 size() const { return size_; }
  // The end of the chunk, which no row of it is behind.
  const KeyTexts& end() const { return end_; }

  // A row, until the next call; it has the columns that the backfill needs, in the order of their
  // keys.
  TupleTableSlot* Row(uint64 number);
  // The key of the row that was asked for last. Needs pinned settings.
  KeyTexts Key() const;
  // The size of that row, without compression. Reads no value that is stored elsewhere.
  size_t Bytes() const;

  void Close();

 private:
  std::vector<std::string> NeededColumns() const;
  std::string Between(const KeyTexts& upto) const;

  const Backfill& backfill_;
  Relation table_;
  PageKey key_;
  KeyTexts end_;
  SPITupleTable* rows_ = nullptr;
  uint64 size_ = 0;
  std::vector<AttrNumber> columns_;  // of the table, in the order of the columns of rows_
  TupleTableSlot* slot_ = nullptr;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_CHUNK_ROWS_H_
