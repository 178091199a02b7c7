// The ids of events.
//
// A new event gets a UUIDv7 (RFC 9562): time first, so that the index on it grows at one end. Ids
// made by one backend always grow. An event that follows from another one gets a UUIDv5: the same
// source makes the same id, in any backend and any number of times.
#ifndef POSTBOX_EXTENSION_BASE_UUID_H_
#define POSTBOX_EXTENSION_BASE_UUID_H_

#include "extension/base/postgres.h"

namespace postbox {

// The namespace of every UUIDv5 of Postbox: uuid5(NAMESPACE_DNS, 'postbox').
inline constexpr pg_uuid_t kPostboxNamespace = {{0x26, 0x45, 0xdd, 0x6e, 0x16, 0x41, 0x52, 0x25,
                                                 0xab, 0x9b, 0x3b, 0x9e, 0x69, 0x5d, 0x8b, 0x87}};

// Milliseconds of Unix time (48 bits), their fraction in 1/4096 (12 bits), 62 random bits.
pg_uuid_t UuidV7();

// SHA-1 of the namespace and `name`.
pg_uuid_t UuidV5(const pg_uuid_t& name_space, std::string_view name);

// The id of the event that follows from event `source_event_id`. Each part goes in with its length,
// so that no two different sources read the same.
pg_uuid_t DerivedEventId(std::string_view source_event_id, std::string_view event_type,
                         std::string_view aggregate_type, std::string_view aggregate_id);

// The key of an event in an inbox. An event id that is the text of a uuid is that uuid (in every
// form that the type uuid reads: letter case, braces and hyphens do not matter); any other text,
// for example evt_2a87, is its UUIDv5 in kPostboxNamespace. The same text gives the same key
// always.
pg_uuid_t InboxKey(std::string_view event_id);

// 8-4-4-4-12 hexadecimal digits.
std::string UuidText(const pg_uuid_t& uuid);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_UUID_H_
