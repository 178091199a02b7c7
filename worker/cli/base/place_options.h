// What the command line says about where Pub/Sub is.
#ifndef POSTBOX_WORKER_CLI_BASE_PLACE_OPTIONS_H_
#define POSTBOX_WORKER_CLI_BASE_PLACE_OPTIONS_H_

#include <string>

namespace postbox::cli {

struct PlaceOptions {
  std::string dsn;       // asked for postbox.project_id and postbox.endpoint if `project` is empty
  std::string endpoint;  // see proto/rules/endpoint.h
  std::string project;
  // That of a file: it goes before that of the database, which is asked for the endpoint still.
  std::string file_project;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_PLACE_OPTIONS_H_
