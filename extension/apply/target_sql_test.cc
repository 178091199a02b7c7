#include "extension/apply/target_sql.h"

#include <gtest/gtest.h>

namespace postbox {
namespace {

TargetSql Sql(bool returns_version = false) {
  return {"s.t", {"region", "\"Id\"", "version", "title"}, {"=", "OPERATOR(x.=)"}, returns_version};
}

TEST(TargetSqlTest, AnUpsertWritesOverAnOlderRow) {
  EXPECT_EQ(Sql().Upsert("1111"),
            "INSERT INTO s.t AS stored (region, \"Id\", version, title) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (region, \"Id\") DO UPDATE SET version = EXCLUDED.version, "
            "title = EXCLUDED.title WHERE (stored.version < $3 OR stored.version IS NULL)");
}

TEST(TargetSqlTest, AbsentColumnsAreLeftAloneAndParametersKeepTheirNumbers) {
  const TargetSql sql{"t", {"id", "version", "a", "b"}, {"="}, false};
  EXPECT_EQ(sql.Upsert("1101"),
            "INSERT INTO t AS stored (id, version, b) VALUES ($1, $2, $4) ON CONFLICT (id) "
            "DO UPDATE SET version = EXCLUDED.version, b = EXCLUDED.b "
            "WHERE (stored.version < $2 OR stored.version IS NULL)");
  EXPECT_EQ(sql.Update("1101"),
            "UPDATE t AS stored SET version = $2, b = $4 WHERE stored.id = $1 "
            "AND (stored.version < $2 OR stored.version IS NULL)");
}

TEST(TargetSqlTest, WhatATriggerMayChangeIsReturned) {
  for (const std::string& sql : {Sql(true).Upsert("1111"), Sql(true).Update("1111")}) {
    EXPECT_TRUE(sql.ends_with(" RETURNING stored.version::pg_catalog.int8")) << sql;
  }
}

TEST(TargetSqlTest, ASetComparesEachRowWithItsOwnVersion) {
  EXPECT_EQ(Sql().UpsertSet(),
            "INSERT INTO s.t AS stored (region, \"Id\", version, title) "
            "SELECT * FROM unnest($1, $2, $3, $4) "
            "ON CONFLICT (region, \"Id\") DO UPDATE SET version = EXCLUDED.version, "
            "title = EXCLUDED.title "
            "WHERE (stored.version < EXCLUDED.version OR stored.version IS NULL) "
            "RETURNING region, \"Id\"");
}

TEST(TargetSqlTest, RowsAreFoundByTheOperatorsOfTheKey) {
  const std::string key =
      " FROM s.t AS stored WHERE stored.region = $1 AND stored.\"Id\" OPERATOR(x.=) $2";
  EXPECT_EQ(Sql().DeleteAny(), "DELETE" + key);
  EXPECT_EQ(Sql().DeleteOlder(),
            "DELETE" + key + " AND (stored.version < $3 OR stored.version IS NULL)");
  EXPECT_EQ(Sql().StoredVersion(), "SELECT stored.version::pg_catalog.int8" + key);
}

// A projection that writes "b" and "c" beside another one that writes "d".
TargetSql Shadow() {
  TargetSql sql("s.t", {"a", "v", "b", "c"}, {"OPERATOR(pg_catalog.=)"}, false);
  sql.SetShadow({"00001", "11110", {"", "", "10000", "01000"}, {"d"}});
  return sql;
}

TEST(TargetSqlTest, AShadowMarksWhatAnEventSets) {
  EXPECT_EQ(Shadow().Upsert("1110"),
            "INSERT INTO s.t AS stored (a, v, b, postbox_set) VALUES ($1, $2, $3, CASE WHEN $2 = 1 "
            "THEN B'11111' ELSE B'10001' END) ON CONFLICT (a) DO UPDATE SET v = EXCLUDED.v, b = "
            "EXCLUDED.b, d = CASE WHEN stored.postbox_deleted THEN EXCLUDED.d ELSE stored.d END, c "
            "= CASE WHEN stored.postbox_deleted THEN EXCLUDED.c ELSE stored.c END, postbox_set = "
            "EXCLUDED.postbox_set | CASE WHEN stored.postbox_deleted THEN B'11110' ELSE "
            "stored.postbox_set END, postbox_deleted = false WHERE (stored.v < $2 OR stored.v IS "
            "NULL)");
}

TEST(TargetSqlTest, AShadowKeepsTheVersionOfADelete) {
  EXPECT_EQ(Shadow().MarkDeleted(),
            "INSERT INTO s.t AS stored (a, v, postbox_set, postbox_deleted) VALUES ($1, $2, "
            "B'00000', true) ON CONFLICT (a) DO UPDATE SET v = EXCLUDED.v, b = EXCLUDED.b, c = "
            "EXCLUDED.c, d = EXCLUDED.d, postbox_set = EXCLUDED.postbox_set, postbox_deleted = "
            "true WHERE (stored.v < $2 OR stored.v IS NULL)");
}

}  // namespace
}  // namespace postbox
