// Output that is to wait for its reader, but not beyond the end of the process.
#ifndef POSTBOX_WORKER_BASE_WRITE_WHILE_H_
#define POSTBOX_WORKER_BASE_WRITE_WHILE_H_

#include <functional>
#include <string_view>

namespace postbox {

// Writes the text to a file descriptor, and waits for room as long as `go_on`, asked a few times a
// second, says so. False if it was not written, or not all of it.
bool WriteWhile(int fd, std::string_view text, const std::function<bool()>& go_on);

}  // namespace postbox

#endif  // POSTBOX_WORKER_BASE_WRITE_WHILE_H_
