// The files of the page, which the build embeds: those of the folder page, and the libraries from
// npm. They are the same for everyone and have no data, so they need no session.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_PAGE_FILES_H_
#define POSTBOX_WORKER_CLI_CONSOLE_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace postbox::cli {

struct PageFile {
  std::string_view name;  // relative to the page, as in page/main.js; empty: the page itself
  const char* type;       // of its content
  const char* tag;        // an ETag, with its quotes: a hash of the content
  std::string_view content;
};
std::span<const PageFile> PageFiles();

// Nothing if there is no file of exactly this name.
const PageFile* FindPageFile(std::string_view name);

// Whether the header If-None-Match names the tag, so that the client has the content already.
bool HasTag(std::string_view if_none_match, std::string_view tag);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_PAGE_FILES_H_
