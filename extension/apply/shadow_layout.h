// The shadow of a target: which columns it has, and which bits mark what (shadow_marks.h).
//
// It follows from the projections of the target and the target as they are now. So a rebuild that
// finds another layout at its end than at its beginning knows that the target was altered.
#ifndef POSTBOX_EXTENSION_APPLY_SHADOW_LAYOUT_H_
#define POSTBOX_EXTENSION_APPLY_SHADOW_LAYOUT_H_

#include "extension/apply/projection_columns.h"

namespace postbox {

class ShadowLayout {
 public:
  struct Column {
    std::string name;
    Oid type;
    int32 typmod;
    Oid collation;
    bool not_null;
    // Some projection maps it, or needs it. Otherwise it was found by its name, and has a default.
    bool required;
    // Its default has another value each time, or may have: it is left to the target.
    bool moving;
    std::string default_value;  // an expression; empty: none, or it is moving
    size_t version;             // of versions(): that of the projections that write it
  };
  struct Writer {  // a projection
    size_t version;
    std::vector<size_t> columns;
  };

  // Needs an open SPI connection, FixedSearchPath, and at least one projection. Throws what is
  // wrong with one of them.
  explicit ShadowLayout(const std::vector<ProjectionConfig>& projections);

  Oid target() const { return target_; }
  const std::string& target_name() const { return target_name_; }  // quoted, qualified
  const std::vector<Column>& key() const { return key_; }
  const std::vector<std::string>& key_operators() const { return key_operators_; }
  const std::vector<Column>& columns() const { return columns_; }  // neither key nor version
  const std::vector<Column>& versions() const { return versions_; }
  const std::vector<Writer>& writers() const { return writers_; }

  size_t bits() const { return columns_.size() + versions_.size() + writers_.size(); }
  size_t BegunBit(size_t version) const { return columns_.size() + version; }
  size_t TouchedBit(size_t writer) const { return columns_.size() + versions_.size() + writer; }
  // Of the projections, in their order.
  ShadowMarks Marks(size_t writer) const;

  // SQL conditions on a row of the shadow, which is called `row`; empty: the row of a CHECK.
  static std::string HasBit(const std::string& row, size_t bit);
  static std::string HasBits(const std::string& row, const std::string& mask);
  // No event is missing of what the row has: each projection that has written it has set all of its
  // required columns, or its history begins in the window.
  std::string Complete(const std::string& row) const;
  // Each column that has this version was set, or its history begins in the window.
  std::string Full(const std::string& row, size_t version) const;

  // The statement that creates it.
  std::string CreateTable(const std::string& name) const;

 private:
  void AddWriter(const ProjectionColumns& resolved);
  void ReadDefaults();
  std::string Mask(const std::vector<size_t>& bits) const;
  std::string ColumnDefinition(const Column& column) const;
  std::vector<std::string> Checks() const;
  std::string NotNullCheck(size_t column) const;

  Oid target_ = InvalidOid;
  std::string target_name_;
  std::vector<Column> key_;
  std::vector<std::string> key_operators_;
  std::vector<Column> columns_;
  std::vector<Column> versions_;
  std::vector<Writer> writers_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_SHADOW_LAYOUT_H_
