// The values of the settings (GUCs) of Postbox in this process. Their names, ranges and meanings
// are in extension/lifecycle/define_settings.cc.
//
// postbox.so owns the variables; postbox_worker.so reads them through extension/shared/exports.h.
// Strings are never null.
#ifndef POSTBOX_EXTENSION_SHARED_SETTINGS_H_
#define POSTBOX_EXTENSION_SHARED_SETTINGS_H_

#include "extension/base/postgres.h"

namespace postbox {

// What a publisher compresses its requests with.
enum class Compression { kOff, kGzip };

struct Settings {
  // The Pub/Sub service, and as which project it is used.
  char* endpoint;       // see proto/rules/endpoint.h
  char* project_id;     // completes short topic ids; may be empty
  char* quota_project;  // may be empty

  // Where traces go; empty: nowhere. See proto/rules/otlp_endpoint.h.
  char* otlp_endpoint;

  // The publisher workers.
  int publishers;     // per database; 0 stops publishing
  int max_workers;    // of all databases together
  int poll_interval;  // ms
  int claim_batch_size;
  int lease_timeout;    // s
  int publish_timeout;  // s
  int max_outstanding_messages;
  int max_outstanding_bytes;  // kB
  int channels;
  int compression;           // a Compression
  int maintenance_interval;  // s
  int checkpoint_interval;   // ms
  int read_chunk_size;
  int restart_delay;  // ms: the first delay before a failed worker is started again

  // For developers. Failpoints are "name=action,name=action", the actions being kill, error and
  // pause.
  char* failpoint;
  int time_scale;  // percent

  // What outbox_emit takes from the session.
  char* default_outbox;
  char* correlation_id;
  char* causation_id;
  char* user_id;
  char* traceparent;
  char* source_service;
  char* source_version;

  // Whether change triggers emit nothing in this transaction; see define_settings.h.
  bool mute_changes;
};

// The values in this process. UseSettings() sets the address, once, before the first call of
// settings().
const Settings& settings();
void UseSettings(const Settings* values);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_SETTINGS_H_
