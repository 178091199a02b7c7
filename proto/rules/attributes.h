// The attributes of a Postbox message: the seven standard ones (in the order below), then the
// caller's.
//
// Plain header: standard library only. It has the only list of the names and the only builder. They
// are used where a message is built (emit, worker) and where it is read (puller). control/reference
// makes a page of the names: the comment before a name is what the page says of it.
//
// A caller's attribute with a standard name never replaces the standard one: outbox_emit refuses
// it, and the builder drops it.
//
// The context of a trace goes out under two names: those of W3C Trace Context and those that
// Google's clients write and read. To set one sets both.

#ifndef POSTBOX_PROTO_RULES_ATTRIBUTES_H_
#define POSTBOX_PROTO_RULES_ATTRIBUTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/rules/limits.h"

namespace postbox::pubsub {

// The identity of the event, a uuid. A message that is sent again has the same one.
inline constexpr std::string_view kEventId = "event_id";
// The type of the event, for example `video.created`.
inline constexpr std::string_view kEventType = "event_type";
// The id of the aggregate. It is also the ordering key, unless the publication says otherwise.
inline constexpr std::string_view kAggregateId = "aggregate_id";
// The type of the aggregate, for example `video`.
inline constexpr std::string_view kAggregateType = "aggregate_type";
// The number of the event within its aggregate, in decimal. It only grows.
inline constexpr std::string_view kVersion = "version";
// When the event occurred: RFC 3339 in UTC, with up to six fractional digits of the second.
inline constexpr std::string_view kOccurredAt = "occurred_at";
// The version of the schema of the payload; `v1` unless the emitter gives another one.
inline constexpr std::string_view kSchemaVersion = "schema_version";

inline constexpr std::array<std::string_view, 7> kStandardAttributes = {
    kEventId, kEventType, kAggregateId, kAggregateType, kVersion, kOccurredAt, kSchemaVersion};

// outbox_emit adds these when the setting postbox.<name> is not empty.

// An id of the request or the business process to which the event belongs.
inline constexpr std::string_view kCorrelationId = "correlation_id";
// An id of the event or the command that caused this event.
inline constexpr std::string_view kCausationId = "causation_id";
// The user on whose behalf the event was emitted.
inline constexpr std::string_view kUserId = "user_id";
// The trace and the span in which the event was emitted, in the format of W3C Trace Context.
inline constexpr std::string_view kTraceparent = "traceparent";
// The name of the emitting service.
inline constexpr std::string_view kSourceService = "source_service";
// The version of the emitting service.
inline constexpr std::string_view kSourceVersion = "source_version";

inline constexpr std::array<std::string_view, 6> kContextAttributes = {
    kCorrelationId, kCausationId, kUserId, kTraceparent, kSourceService, kSourceVersion};

// The names of W3C Trace Context, and the same for Google's clients. Of the names that begin with
// "goog" an emitter may use only these.
struct TraceName {
  std::string_view standard;
  std::string_view of_clients;
};
inline constexpr std::array<TraceName, 2> kTraceNames = {
    {{kTraceparent, "googclient_traceparent"}, {"tracestate", "googclient_tracestate"}}};

constexpr bool IsTraceNameOfClients(std::string_view name) {
  return name == kTraceNames[0].of_clients || name == kTraceNames[1].of_clients;
}

// The id of a trace, from other clients. `postbox pull` writes it into its log lines if the message
// has no `traceparent`.
inline constexpr std::string_view kTraceId = "trace_id";

// Marks the events of a backfill: they show a row as it was when they were emitted, and no change.
// The value is the name of the backfill.
inline constexpr std::string_view kSnapshot = "postbox_snapshot";

// What `postbox pull` adds to a message that it publishes to a dead-letter topic. It removes those
// of an earlier pass.
inline constexpr std::string_view kErrorPrefix = "postbox_error_";
// The SQLSTATE of the error.
inline constexpr std::string_view kErrorSqlstate = "postbox_error_sqlstate";
// The error message, cut to the length that Pub/Sub allows.
inline constexpr std::string_view kErrorMessage = "postbox_error_message";
// The Pub/Sub subscription from which the message was received, as a full resource name.
inline constexpr std::string_view kOriginalSubscription = "postbox_original_subscription";

// The place of a standard attribute, or the number of places.
constexpr std::size_t StandardAttributeIndex(std::string_view name) {
  std::size_t index = 0;
  while (index < kStandardAttributes.size() && name != kStandardAttributes[index]) ++index;
  return index;
}

constexpr bool IsStandardAttribute(std::string_view name) {
  return StandardAttributeIndex(name) < kStandardAttributes.size();
}

// What outbox_emit stores among the attributes of an event for the worker that publishes it. These
// are not sent: when a message may be sent is of no use behind Pub/Sub, and a consumer that passes
// the attributes on would pass the times on, too.
//
// Not before this time: RFC 3339.
inline constexpr std::string_view kDeliverAt = "postbox_deliver_at";
// Not at this time or later: RFC 3339.
inline constexpr std::string_view kExpiresAt = "postbox_expires_at";
// If it is there, in a log: the event has no place in the order of its key.
inline constexpr std::string_view kKeyMayPass = "postbox_key_may_pass";

inline constexpr std::array<std::string_view, 3> kTimeAttributes = {kDeliverAt, kExpiresAt,
                                                                    kKeyMayPass};

constexpr bool IsTimeAttribute(std::string_view name) {
  return name == kDeliverAt || name == kExpiresAt || name == kKeyMayPass;
}

using Attributes = std::vector<std::pair<std::string, std::string>>;

// The value of an attribute, or null if there is none of this name.
// `attributes`: a vector of pairs of strings or views.
template <class AttributeVector>
const typename AttributeVector::value_type::second_type* FindAttribute(
    const AttributeVector& attributes, std::string_view name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

// Adds the context of a trace under the name that it has not yet, where there is room for it.
// `attributes`: a vector of pairs of strings or views.
template <class AttributeVector>
void CompleteTraceNames(AttributeVector* attributes) {
  for (const TraceName& name : kTraceNames) {
    std::size_t standard = attributes->size();
    std::size_t of_clients = attributes->size();
    for (std::size_t i = 0; i < attributes->size(); ++i) {
      const std::string_view key = (*attributes)[i].first;
      if (key == name.standard) standard = i;
      if (key == name.of_clients) of_clients = i;
    }
    if ((standard == attributes->size()) == (of_clients == attributes->size())) continue;
    if (attributes->size() >= kMaxAttributes) continue;
    const bool has_standard = standard < attributes->size();
    const auto value = (*attributes)[has_standard ? standard : of_clients].second;
    attributes->emplace_back(has_standard ? name.of_clients : name.standard, value);
  }
}

// The trace id (32 hex digits) of a W3C traceparent "00-<trace id>-<parent id>-<flags>", or an
// empty text if `traceparent` does not have this form.
constexpr std::string_view TraceIdOf(std::string_view traceparent) {
  constexpr std::size_t kTraceIdBegin = 3;
  constexpr std::size_t kTraceIdLength = 32;
  if (traceparent.size() < 55 || traceparent[2] != '-' ||
      traceparent[kTraceIdBegin + kTraceIdLength] != '-')
    return "";
  const std::string_view id = traceparent.substr(kTraceIdBegin, kTraceIdLength);
  return id.find_first_not_of("0123456789abcdef") == std::string_view::npos ? id : "";
}

// The trace of a message: of its traceparent, under either name, or else its attribute trace_id;
// empty if it has none. `attributes`: a vector of pairs of strings or views.
template <class AttributeVector>
std::string_view TraceIdAmong(const AttributeVector& attributes) {
  for (const std::string_view name : {kTraceNames[0].standard, kTraceNames[0].of_clients}) {
    const auto* parent = FindAttribute(attributes, name);
    if (parent == nullptr) continue;
    if (const std::string_view id = TraceIdOf(*parent); !id.empty()) return id;
  }
  const auto* id = FindAttribute(attributes, kTraceId);
  return id == nullptr ? std::string_view() : std::string_view(*id);
}

namespace internal {

constexpr std::int64_t kMicrosPerSecond = 1'000'000;
constexpr std::int64_t kSecondsPerDay = 86'400;

// Days since 1970-01-01 of a date of the proleptic Gregorian calendar, and the reverse. The
// calculation lets the year begin in March, so that the leap day is its last day, and uses that the
// calendar repeats every 400 years, which are 146097 days.
constexpr std::int64_t DaysFromDate(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146'097 + day_of_era - 719'468;
}

struct Date {
  std::int64_t year;
  int month;
  int day;
};

constexpr Date DateFromDays(std::int64_t days) {
  days += 719'468;
  const std::int64_t era = (days >= 0 ? days : days - 146'096) / 146'097;
  const std::int64_t day_of_era = days - era * 146'097;
  const std::int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const std::int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const int month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  return Date{year_of_era + era * 400 + (month <= 2 ? 1 : 0), month,
              static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1)};
}

constexpr int DaysInMonth(std::int64_t year, int month) {
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2                                                ? (leap ? 29 : 28)
         : (month == 4 || month == 6 || month == 9 || month == 11) ? 30
                                                                   : 31;
}

// Writes the last `digits` decimal digits of a non-negative number.
constexpr void PutDigits(int value, int digits, char* out) {
  for (int i = digits - 1; i >= 0; --i, value /= 10) out[i] = static_cast<char>('0' + value % 10);
}

}  // namespace internal

// The range that RFC 3339 can express, years 0001 to 9999, in microseconds since 1970-01-01 00:00
// UTC.
inline constexpr std::int64_t kMinRfc3339Micros =
    internal::DaysFromDate(1, 1, 1) * internal::kSecondsPerDay * internal::kMicrosPerSecond;
inline constexpr std::int64_t kMaxRfc3339Micros =
    internal::DaysFromDate(10'000, 1, 1) * internal::kSecondsPerDay * internal::kMicrosPerSecond -
    1;

// A time as text. The form is "2025-10-24T10:30:00Z", with 3 or 6 digits of a fraction of a second
// if they are needed. A time outside of kMinRfc3339Micros..kMaxRfc3339Micros becomes the nearest
// time inside. (outbox_emit refuses such times.)
class Rfc3339Text {
 public:
  explicit Rfc3339Text(std::int64_t micros) {
    if (micros < kMinRfc3339Micros) micros = kMinRfc3339Micros;
    if (micros > kMaxRfc3339Micros) micros = kMaxRfc3339Micros;
    std::int64_t seconds = micros / internal::kMicrosPerSecond;
    auto fraction = static_cast<int>(micros % internal::kMicrosPerSecond);
    if (fraction < 0) {
      fraction += static_cast<int>(internal::kMicrosPerSecond);
      --seconds;
    }
    std::int64_t days = seconds / internal::kSecondsPerDay;
    auto second_of_day = static_cast<int>(seconds % internal::kSecondsPerDay);
    if (second_of_day < 0) {
      second_of_day += static_cast<int>(internal::kSecondsPerDay);
      --days;
    }
    const internal::Date date = internal::DateFromDays(days);
    internal::PutDigits(static_cast<int>(date.year), 4, &text_[0]);
    internal::PutDigits(date.month, 2, &text_[5]);
    internal::PutDigits(date.day, 2, &text_[8]);
    internal::PutDigits(second_of_day / 3600, 2, &text_[11]);
    internal::PutDigits(second_of_day / 60 % 60, 2, &text_[14]);
    internal::PutDigits(second_of_day % 60, 2, &text_[17]);
    if (fraction != 0) {
      const bool micro = fraction % 1000 != 0;
      const int digits = micro ? 6 : 3;
      text_[kSeconds] = '.';
      internal::PutDigits(micro ? fraction : fraction / 1000, digits, &text_[kSeconds + 1]);
      size_ += 1 + static_cast<std::size_t>(digits);
    }
    text_[size_++] = 'Z';
  }

  std::string_view view() const { return {text_.data(), size_}; }

 private:
  static constexpr std::size_t kSeconds = 19;  // the length up to the seconds
  std::array<char, 28> text_{"0000-00-00T00:00:00"};
  std::size_t size_ = kSeconds;
};

inline std::string FormatRfc3339(std::int64_t micros) {
  return std::string(Rfc3339Text(micros).view());
}

// Reads an RFC 3339 time with any offset and any number of digits of a fraction of a second. Digits
// below a microsecond are dropped. A leap second is read as the second after it. Returns false if
// the text is not such a time, or one that its offset moves out of
// kMinRfc3339Micros..kMaxRfc3339Micros.
constexpr bool ParseRfc3339(std::string_view text, std::int64_t* micros) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  if (text.size() <= kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const char c = text[i];
    const bool t = kForm[i] == 'T' && (c == 't' || c == ' ');
    if (kForm[i] == '0' ? !digit(i) : (c != kForm[i] && !t)) return false;
  }
  const auto pair = [&](std::size_t i) { return (text[i] - '0') * 10 + (text[i + 1] - '0'); };
  const int year = pair(0) * 100 + pair(2);
  const int month = pair(5);
  const int day = pair(8);
  const int hour = pair(11);
  const int minute = pair(14);
  const int second = pair(17);
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > internal::DaysInMonth(year, month) ||
      hour > 23 || minute > 59 || second > 60) {
    return false;
  }
  std::size_t at = kForm.size();
  std::int64_t fraction = 0;
  if (text[at] == '.') {
    ++at;
    std::int64_t unit = internal::kMicrosPerSecond;
    const std::size_t begin = at;
    for (; at < text.size() && digit(at); ++at) {
      unit /= 10;
      fraction += unit * (text[at] - '0');
    }
    if (at == begin) return false;
  }
  std::int64_t offset_minutes = 0;
  const std::size_t left = text.size() - at;
  if (left == 6 && (text[at] == '+' || text[at] == '-')) {
    if (!digit(at + 1) || !digit(at + 2) || text[at + 3] != ':' || !digit(at + 4) ||
        !digit(at + 5)) {
      return false;
    }
    const int hours = pair(at + 1);
    const int minutes = pair(at + 4);
    if (hours > 23 || minutes > 59) return false;
    offset_minutes = (text[at] == '-' ? -1 : 1) * (hours * 60 + minutes);
  } else if (left != 1 || (text[at] != 'Z' && text[at] != 'z')) {
    return false;
  }
  const std::int64_t seconds = internal::DaysFromDate(year, month, day) * internal::kSecondsPerDay +
                               hour * 3600 + (minute - offset_minutes) * 60 + second;
  *micros = seconds * internal::kMicrosPerSecond + fraction;
  return *micros >= kMinRfc3339Micros && *micros <= kMaxRfc3339Micros;
}

// The event fields that become attributes.
struct StandardFields {
  std::string_view event_id;
  std::string_view event_type;
  std::string_view aggregate_id;
  std::string_view aggregate_type;
  std::int64_t version;
  std::int64_t occurred_at_micros;  // since 1970-01-01 00:00 UTC; Postgres counts from 2000-01-01
  std::string_view schema_version;
};

using AttributeView = std::pair<std::string_view, std::string_view>;

// The standard attributes of an event, in their order. This is the only place that builds the list:
// emit checks it, and the worker sends it. The views are valid as long as this object and the texts
// that `fields` refers to.
class StandardAttributes {
 public:
  explicit StandardAttributes(const StandardFields& fields)
      : version_(std::to_string(fields.version)),
        occurred_at_(fields.occurred_at_micros),
        views_{{{kEventId, fields.event_id},
                {kEventType, fields.event_type},
                {kAggregateId, fields.aggregate_id},
                {kAggregateType, fields.aggregate_type},
                {kVersion, version_},
                {kOccurredAt, occurred_at_.view()},
                {kSchemaVersion, fields.schema_version}}} {}
  StandardAttributes(const StandardAttributes&) = delete;
  StandardAttributes& operator=(const StandardAttributes&) = delete;

  const std::array<AttributeView, kStandardAttributes.size()>& views() const { return views_; }

  // All attributes of the message. `extra`, the caller's attributes, is a range of pairs of strings
  // with distinct keys.
  template <class AttributeRange>
  std::vector<AttributeView> With(const AttributeRange& extra) const {
    std::vector<AttributeView> all;
    all.reserve(views_.size() + std::size(extra) + kTraceNames.size());
    all.assign(views_.begin(), views_.end());
    for (const auto& [key, value] : extra) {
      if (!IsStandardAttribute(key)) all.emplace_back(key, value);
    }
    CompleteTraceNames(&all);
    return all;
  }

 private:
  const std::string version_;
  const Rfc3339Text occurred_at_;
  const std::array<AttributeView, kStandardAttributes.size()> views_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_ATTRIBUTES_H_
