// Texts from outside in the encoding of the database: what a server on the network says may be in
// any.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_SERVER_TEXT_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_SERVER_TEXT_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

// `text`, which should be UTF-8, for a column or the log. What cannot be converted, and every NUL,
// becomes '?'.
std::string ServerText(std::string_view text);

// For the reason of a failure: what an owner's code or a server on the network has written may have
// hundreds of megabytes, and goes into the log and into a row with each attempt. In bytes.
inline constexpr std::size_t kMaxReason = 8192;

// At most `size` bytes of a text in the encoding of the database, with "..." if there is more.
std::string Shortened(const std::string& text, std::size_t size);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_SERVER_TEXT_H_
