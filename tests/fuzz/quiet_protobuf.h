// For targets that hand texts of any bytes to protobuf, which would log each that is not UTF-8.
#ifndef POSTBOX_TESTS_FUZZ_QUIET_PROTOBUF_H_
#define POSTBOX_TESTS_FUZZ_QUIET_PROTOBUF_H_

#include <google/protobuf/stubs/logging.h>

namespace postbox::fuzz {

inline void QuietProtobuf() { static const google::protobuf::LogSilencer silencer; }

}  // namespace postbox::fuzz

#endif  // POSTBOX_TESTS_FUZZ_QUIET_PROTOBUF_H_
