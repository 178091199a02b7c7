// `postbox doctor`: runs postbox.doctor() in the database, and adds what only a client can see.
#ifndef POSTBOX_WORKER_CLI_DOCTOR_DOCTOR_H_
#define POSTBOX_WORKER_CLI_DOCTOR_DOCTOR_H_

#include <string>

namespace postbox::cli {

struct DoctorOptions {
  std::string dsn;       // libpq connection string or URI; PG* complete it
  std::string endpoint;  // empty: postbox.endpoint of the database
  std::string project;   // empty: postbox.project_id of the database
  bool offline = false;  // leave Pub/Sub out
  bool json = false;
  bool strict = false;  // warnings count as errors for the exit status
};

// Prints the report on standard output. Returns 0 if there is no error, and no warning with
// `strict`; else 1.
int RunDoctor(const DoctorOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_DOCTOR_DOCTOR_H_
