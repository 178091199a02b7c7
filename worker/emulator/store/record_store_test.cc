#include "worker/emulator/store/record_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace postbox::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using namespace std::string_literals;

class RecordStoreTest : public testing::Test {
 protected:
  RecordStoreTest() {
    std::string pattern = testing::TempDir() + "record-store-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~RecordStoreTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<RecordStore> Open() {
    auto store = RecordStore::Open(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static std::vector<std::pair<std::string, std::string>> All(RecordStore* store, int kind) {
    std::vector<std::pair<std::string, std::string>> all;
    EXPECT_TRUE(store
                    ->ForEach(kind,
                              [&all](absl::string_view key, absl::string_view value) {
                                all.emplace_back(key, value);
                                return absl::OkStatus();
                              })
                    .ok());
    return all;
  }

  std::string directory_;
};

TEST_F(RecordStoreTest, RecordsAreThereAgainWhenItIsOpenedAgain) {
  auto store = Open();
  store->Apply({{1, "b", "2"}, {1, "a", ""}, {2, "a", "other kind"}, {1, "c\0d"s, "\0\xFF"s}});
  store->Apply({{1, "b", "3"}});
  store.reset();
  store = Open();
  EXPECT_THAT(All(store.get(), 1),
              ElementsAre(Pair("a", ""), Pair("b", "3"), Pair("c\0d"s, "\0\xFF"s)));
  EXPECT_THAT(All(store.get(), 2), ElementsAre(Pair("a", "other kind")));
  EXPECT_THAT(All(store.get(), 3), IsEmpty());
}

TEST_F(RecordStoreTest, RecordsAreRemovedOneByOneAndByTheBeginningOfTheirKeys) {
  auto store = Open();
  store->Apply({{1, "a\0one"s, "x"},
                {1, "a\0two"s, "x"},
                {1, "a", "x"},
                {1, "ab", "x"},
                {2, "a\0one"s, "x"}});
  store->Apply({{1, "a\0"s, std::nullopt, /*prefix=*/true}});
  EXPECT_THAT(All(store.get(), 1), ElementsAre(Pair("a", "x"), Pair("ab", "x")));
  store->Apply({{1, "ab", std::nullopt}, {1, "nothing", std::nullopt}});
  EXPECT_THAT(All(store.get(), 1), ElementsAre(Pair("a", "x")));
  EXPECT_THAT(All(store.get(), 2), ElementsAre(Pair("a\0one"s, "x")));
}

TEST_F(RecordStoreTest, TheOrderOfChangesIsTheirOrderInTheList) {
  auto store = Open();
  store->Apply({{1, "a", "1"}, {1, "a", std::nullopt}, {1, "b", std::nullopt}, {1, "b", "2"}});
  EXPECT_THAT(All(store.get(), 1), ElementsAre(Pair("b", "2")));
}

TEST_F(RecordStoreTest, OneProcessAtATimeHasADirectory) {
  const auto first = Open();
  const auto second = RecordStore::Open(directory_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another emulator uses"));
}

TEST_F(RecordStoreTest, AProcessThatIsKilledLosesNothingThatItHasApplied) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = RecordStore::Open(directory_);
    for (int i = 0; i < 1000 && store.ok(); ++i) (*store)->Apply({{1, std::to_string(i), "x"}});
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(All(Open().get(), 1).size(), 1000u);
}

TEST_F(RecordStoreTest, AFileOfAnotherVersionIsLeftAlone) {
  Open().reset();
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((directory_ + "/emulator.db").c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version = 99", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  const auto store = RecordStore::Open(directory_);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("not made by an emulator of this"));
}

TEST_F(RecordStoreTest, ADirectoryThatCannotBeMadeIsAnError) {
  const auto store = RecordStore::Open("/proc/no/such");
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace postbox::emulator
