#include "worker/publisher/budget.h"

#include "extension/rules/fair_share.h"
#include "extension/shared/settings.h"
#include "proto/rules/limits.h"

namespace postbox::publisher {

namespace {

// An event that is larger than what is left of the budget may exceed it by this part of it, or by
// the largest message and its row: else it would wait until nothing at all is in flight, which may
// never be so while others publish, or while a topic does not answer.
constexpr std::size_t kOverhang = 8;
constexpr std::size_t kLargestEvent = pubsub::kMaxRequestBytes + pubsub::kMaxRequestBytes / 10;

}  // namespace

bool Budget::Room(std::size_t batch_size, const Tenant& tenant, bool keep,
                  ClaimLimits* limits) const {
  const auto part = [&](std::size_t all) { return keep ? all - KeptPart(all) : all; };
  const std::size_t max_events =
      part(static_cast<std::size_t>(settings().max_outstanding_messages));
  const std::size_t max_bytes =
      part(static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024);
  const std::size_t batch = std::min(batch_size, max_events);
  limits->events = batch;
  limits->bytes = max_bytes;
  limits->first = std::numeric_limits<std::size_t>::max();
  if (empty()) return true;
  const std::size_t most = max_bytes + std::max(max_bytes / kOverhang, kLargestEvent);
  limits->first = most - std::min(most, bytes_);
  limits->events = std::min(batch, Left(max_events, events_, &Tenant::events, tenant));
  limits->bytes = Left(max_bytes, bytes_, &Tenant::bytes, tenant);
  if (limits->events == 0 || limits->bytes == 0) return false;
  if (tenant.events == 0) return true;
  // Not in crumbs: wait until a whole batch fits, or a part of the budget is free.
  const std::size_t most_bytes =
      tenant.has_published ? max_bytes : pubsub::Guaranteed(max_bytes, tenants_.size());
  return limits->events >= std::min(batch, std::max(KeptPart(max_events), std::size_t{1})) &&
         limits->bytes >= KeptPart(most_bytes);
}

std::size_t Budget::Left(std::size_t places, std::size_t all, std::size_t Tenant::*of,
                         const Tenant& tenant) const {
  const std::size_t users = tenants_.size();
  if (users <= 1) return pubsub::MayTake(places, users, all, tenant.*of);
  const std::size_t guaranteed = pubsub::Guaranteed(places, users);
  if (!tenant.has_published) return guaranteed - std::min(guaranteed, tenant.*of);
  for (const auto& other : tenants_) {
    if (!other->has_published) all -= std::min((*other).*of, guaranteed);
  }
  return pubsub::MayTake(places, users, all, tenant.*of);
}

void Budget::Add(std::size_t events, std::size_t bytes, Tenant* tenant) {
  events_ += events;
  bytes_ += bytes;
  tenant->events += events;
  tenant->bytes += bytes;
}

void Budget::Settled(std::size_t events, std::size_t bytes, Tenant* tenant) {
  events_ -= events;
  bytes_ -= bytes;
  tenant->events -= events;
  tenant->bytes -= bytes;
}

}  // namespace postbox::publisher
