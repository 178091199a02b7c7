// What a gRPC status code means for a publish request and for a stream.
//
// Plain header: standard library only. The codes are gRPC's numbers, so that code without gRPC can
// use the header, too.
//
//   publish   retry          The broker or the network has a problem that may pass: ABORTED,
//                            CANCELLED, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED,
//                            UNAVAILABLE, UNKNOWN, DATA_LOSS.
//             event broken   The request will never be taken as it is: INVALID_ARGUMENT,
//                            OUT_OF_RANGE, and INTERNAL if its text says that a string is not valid
//                            UTF-8 (the official clients treat this case in the same way).
//             topic broken   No request to this topic will be taken: NOT_FOUND, PERMISSION_DENIED,
//                            UNAUTHENTICATED, FAILED_PRECONDITION, and two codes that Publish never
//                            returns, UNIMPLEMENTED and ALREADY_EXISTS: the peer is not Pub/Sub.
//   stream    A stream is opened again after an error that may pass and after OK, the end of the
//             stream. It is not opened again after an error that remains until something is
//             repaired.

#ifndef POSTBOX_PROTO_RULES_ERROR_CLASS_H_
#define POSTBOX_PROTO_RULES_ERROR_CLASS_H_

#include <string>
#include <string_view>

namespace postbox::pubsub {

enum StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknownError = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

constexpr std::string_view StatusCodeName(int code) {
  constexpr std::string_view kNames[] = {"OK",
                                         "CANCELLED",
                                         "UNKNOWN",
                                         "INVALID_ARGUMENT",
                                         "DEADLINE_EXCEEDED",
                                         "NOT_FOUND",
                                         "ALREADY_EXISTS",
                                         "PERMISSION_DENIED",
                                         "RESOURCE_EXHAUSTED",
                                         "FAILED_PRECONDITION",
                                         "ABORTED",
                                         "OUT_OF_RANGE",
                                         "UNIMPLEMENTED",
                                         "INTERNAL",
                                         "UNAVAILABLE",
                                         "DATA_LOSS",
                                         "UNAUTHENTICATED"};
  return code >= 0 && code <= kUnauthenticated ? kNames[code] : std::string_view("UNKNOWN");
}

// '<CODE>: text', the form of every error text that reaches a user.
inline std::string StatusText(int code, std::string_view message) {
  std::string text(StatusCodeName(code));
  if (!message.empty()) text.append(": ").append(message);
  return text;
}

enum class PublishErrorClass { kRetry, kEventBroken, kTopicBroken };

constexpr PublishErrorClass ClassifyPublishError(int code, std::string_view message) {
  switch (code) {
    case kInvalidArgument:
    case kOutOfRange:
      return PublishErrorClass::kEventBroken;
    case kInternal:
      return message.find("invalid UTF-8") != std::string_view::npos
                 ? PublishErrorClass::kEventBroken
                 : PublishErrorClass::kRetry;
    case kNotFound:
    case kAlreadyExists:
    case kPermissionDenied:
    case kFailedPrecondition:
    case kUnimplemented:
    case kUnauthenticated:
      return PublishErrorClass::kTopicBroken;
    default:
      return PublishErrorClass::kRetry;
  }
}

// True if a StreamingPull that ended with this code is to be opened again.
constexpr bool ReconnectStream(int code) {
  switch (code) {
    case kInvalidArgument:
    case kNotFound:
    case kAlreadyExists:
    case kPermissionDenied:
    case kFailedPrecondition:
    case kOutOfRange:
    case kUnimplemented:
    case kUnauthenticated:
      return false;
    default:
      return true;
  }
}

// True if a call that can be repeated safely (Acknowledge, ModifyAckDeadline) is to be tried again.
// The list is that of the official clients for acks without a result for each id.
constexpr bool RetryUnary(int code) {
  switch (code) {
    case kDeadlineExceeded:
    case kResourceExhausted:
    case kAborted:
    case kInternal:
    case kUnavailable:
      return true;
    default:
      return false;
  }
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_ERROR_CLASS_H_
