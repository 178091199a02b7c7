#include "worker/cli/console/page_files.h"

#include <gtest/gtest.h>

#include <set>

namespace postbox::cli {
namespace {

TEST(PageFilesTest, AFileIsFoundByItsExactNameOnly) {
  ASSERT_NE(FindPageFile(""), nullptr);
  ASSERT_NE(FindPageFile("page/lib/preact.js"), nullptr);
  for (const char* name :
       {"page", "page/", "page/index.html", "index.html",
        "/"
        "page/lib/preact.js",
        "page/lib/../lib/preact.js", "page//lib/preact.js", "PAGE/lib/preact.js",
        "page/lib/preact.js/", "page/package.json", "page/lib/preact.module.js"}) {
    EXPECT_EQ(FindPageFile(name), nullptr) << name;
  }
}

TEST(PageFilesTest, EachFileHasATagOfItsOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> tags;
  for (const PageFile& file : PageFiles()) {
    names.insert(file.name);
    tags.insert(file.tag);
    EXPECT_FALSE(file.content.empty()) << file.name;
    EXPECT_EQ(std::string_view(file.tag).size(), 34U) << file.name;
  }
  EXPECT_EQ(names.size(), PageFiles().size());
  EXPECT_EQ(tags.size(), PageFiles().size());
}

TEST(PageFilesTest, ALibraryImportsTheOtherByItsPlace) {
  const std::string_view hooks = FindPageFile("page/lib/hooks.js")->content;
  EXPECT_NE(hooks.find("from\"./preact.js\""), std::string_view::npos);
  for (const PageFile& file : PageFiles()) {
    EXPECT_EQ(file.content.find("sourceMappingURL"), std::string_view::npos) << file.name;
  }
}

TEST(PageFilesTest, IfNoneMatchIsAListOfTags) {
  EXPECT_TRUE(HasTag("\"a\"", "\"a\""));
  EXPECT_TRUE(HasTag("W/\"a\"", "\"a\""));
  EXPECT_TRUE(HasTag("\"b\" , \t\"a\" ", "\"a\""));
  EXPECT_TRUE(HasTag("*", "\"a\""));
  for (const char* others : {"", ",", " ", "a", "\"b\"", "\"aa\"", "\"a", "*, \"b\"", "W/"}) {
    EXPECT_FALSE(HasTag(others, "\"a\"")) << others;
  }
}

}  // namespace
}  // namespace postbox::cli
