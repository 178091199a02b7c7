#include "extension/base/uuid.h"

#include <ctime>

#include "extension/base/guard.h"

extern "C" {
#include <common/cryptohash.h>
#include <common/sha1.h>
}

namespace postbox {
namespace {

// Random bytes for the ids of this process, each handed out once. Drawing them costs more than the
// rest of an id, so they are drawn 4096 at a time.
class RandomBytes {
 public:
  void Take(unsigned char* to, size_t count) {
    // After a fork, parent and child must not hand out the same bytes.
    if (process_ != MyProcPid || bytes_.size() - taken_ < count) Draw();
    std::memcpy(to, bytes_.data() + taken_, count);
    taken_ += count;
  }

 private:
  void Draw() {
    process_ = 0;
    if (!pg_strong_random(bytes_.data(), bytes_.size())) {
      Throw(ERRCODE_INTERNAL_ERROR, "could not generate random bits for an event id");
    }
    process_ = MyProcPid;
    taken_ = 0;
  }

  std::array<unsigned char, 4096> bytes_;
  size_t taken_ = 0;
  int process_ = 0;
};

void SetVersion(pg_uuid_t* uuid, int version) {
  uuid->data[6] = static_cast<unsigned char>((uuid->data[6] & 0x0F) | (version << 4));
  uuid->data[8] = static_cast<unsigned char>((uuid->data[8] & 0x3F) | 0x80);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The rules of the type uuid: 32 digits, a hyphen allowed after every fourth, braces around all.
bool ParseUuid(std::string_view text, pg_uuid_t* uuid) {
  if (text.size() >= 2 && text.front() == '{' && text.back() == '}') {
    text = text.substr(1, text.size() - 2);
  }
  size_t at = 0;
  for (int byte = 0; byte < UUID_LEN; ++byte) {
    if (text.size() < at + 2) return false;
    const int high = HexDigit(text[at]);
    const int low = HexDigit(text[at + 1]);
    if (high < 0 || low < 0) return false;
    uuid->data[byte] = static_cast<unsigned char>(high * 16 + low);
    at += 2;
    if (byte % 2 == 1 && byte < UUID_LEN - 1 && at < text.size() && text[at] == '-') ++at;
  }
  return at == text.size();
}

}  // namespace

pg_uuid_t UuidV7() {
  constexpr uint64 kNanosecondsPerMillisecond = 1'000'000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64 nanoseconds =
      static_cast<uint64>(now.tv_sec) * 1'000'000'000 + static_cast<uint64>(now.tv_nsec);
  uint64 time = (nanoseconds / kNanosecondsPerMillisecond) << 12 |
                (nanoseconds % kNanosecondsPerMillisecond) * 4096 / kNanosecondsPerMillisecond;
  // The clock may stand still or go back; the ids of a backend still grow.
  static uint64 last_time = 0;
  time = std::max(time, last_time + 1);
  last_time = time;

  pg_uuid_t uuid;
  static RandomBytes random;
  random.Take(uuid.data + 8, 8);
  for (int i = 0; i < 6; ++i) uuid.data[i] = static_cast<unsigned char>(time >> (52 - 8 * i));
  uuid.data[6] = static_cast<unsigned char>(time >> 8 & 0x0F);
  uuid.data[7] = static_cast<unsigned char>(time);
  SetVersion(&uuid, 7);
  return uuid;
}

pg_uuid_t UuidV5(const pg_uuid_t& name_space, std::string_view name) {
  std::array<uint8, SHA1_DIGEST_LENGTH> digest;
  const bool good = Pg([&] {
    pg_cryptohash_ctx* hash = pg_cryptohash_create(PG_SHA1);
    const bool done =
        hash != nullptr && pg_cryptohash_init(hash) >= 0 &&
        pg_cryptohash_update(hash, name_space.data, sizeof name_space.data) >= 0 &&
        pg_cryptohash_update(hash, reinterpret_cast<const uint8*>(name.data()), name.size()) >= 0 &&
        pg_cryptohash_final(hash, digest.data(), digest.size()) >= 0;
    pg_cryptohash_free(hash);
    return done;
  });
  if (!good) Throw(ERRCODE_INTERNAL_ERROR, "could not compute a SHA-1 hash for an event id");
  pg_uuid_t uuid;
  std::memcpy(uuid.data, digest.data(), sizeof uuid.data);
  SetVersion(&uuid, 5);
  return uuid;
}

pg_uuid_t DerivedEventId(std::string_view source_event_id, std::string_view event_type,
                         std::string_view aggregate_type, std::string_view aggregate_id) {
  std::string name;
  for (const std::string_view part : {source_event_id, event_type, aggregate_type, aggregate_id}) {
    name += std::to_string(part.size());
    name += ':';
    name += part;
    name += ',';
  }
  return UuidV5(kPostboxNamespace, name);
}

pg_uuid_t InboxKey(std::string_view event_id) {
  pg_uuid_t uuid;
  if (ParseUuid(event_id, &uuid)) return uuid;
  return UuidV5(kPostboxNamespace, event_id);
}

std::string UuidText(const pg_uuid_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < UUID_LEN; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.data[i] >> 4];
    text += kDigits[uuid.data[i] & 0x0F];
  }
  return text;
}

}  // namespace postbox
