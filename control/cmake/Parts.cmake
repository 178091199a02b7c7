# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# The rooms of docs/architecture.md. A room is a folder: a file put into it is built.
function(sources variable)  # the sources of rooms, without their tests
  set(all)
  foreach(room ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${room}/*.cc)
    list(FILTER found EXCLUDE REGEX "_test\\.cc$")
    list(APPEND all ${found})
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()
function(test_sources variable)
  set(all)
  foreach(room ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${room}/*_test.cc)
    list(APPEND all ${found})
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

# Most of the time of a compilation goes into headers and what they instantiate, so the sources of a room are compiled together, a
# good thousand lines at a time. Names in their anonymous namespaces must differ for that. With POSTBOX_UNITED off each is compiled
# alone: what editors and clang-tidy want.
option(POSTBOX_UNITED "Compile the sources of a room together" ON)
set(united_lines 1500)
function(united variable)  # FILE...: what is compiled instead of these files
  if(NOT POSTBOX_UNITED)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(all)
  set(group)
  foreach(file ${ARGN} end)
    cmake_path(GET file PARENT_PATH folder)
    if(group AND (NOT folder STREQUAL room OR lines GREATER united_lines))
      # Named after its first file, and the same text in each clone, so that the compiler cache knows it.
      list(GET group 0 first)
      cmake_path(REMOVE_EXTENSION first)
      set(text ${group})
      list(TRANSFORM text PREPEND "#include \"")
      list(TRANSFORM text APPEND "\"\n")
      list(JOIN text "" text)
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/united/${first}.cc CONTENT "${text}" @ONLY)
      list(APPEND all ${CMAKE_BINARY_DIR}/united/${first}.cc)
      set(group)
    endif()
    if(file STREQUAL end)
      break()
    endif()
    if(NOT group)
      set(room ${folder})
      set(lines 0)
    endif()
    file(STRINGS ${file} text)
    list(LENGTH text count)
    math(EXPR lines "${lines} + ${count}")
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${file})
    list(APPEND group ${name})
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

# proto/: generated into the build directory, wire-compatible with Google's definitions.
file(GLOB_RECURSE protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
set(generated ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${generated})
set(proto_messages)
set(proto_services)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${protos})  # whether they have services
foreach(proto ${protos})
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/proto ${proto})
  string(REGEX REPLACE "\\.proto$" "" stem ${name})
  add_custom_command(
    OUTPUT ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h ${generated}/${stem}.grpc.pb.cc ${generated}/${stem}.grpc.pb.h
    COMMAND ${PROTOC} -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${generated} --grpc_out=${generated}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${proto}
    DEPENDS ${protos} COMMENT "Generating ${name}" VERBATIM)
  list(APPEND proto_messages ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h)
  file(STRINGS ${proto} service REGEX "^service ")
  if(service)
    list(APPEND proto_services ${generated}/${stem}.grpc.pb.cc ${generated}/${stem}.grpc.pb.h)
  endif()
endforeach()
# The messages alone take a fraction of the time to compile.
add_library(postbox_messages STATIC ${proto_messages})
target_include_directories(postbox_messages SYSTEM PUBLIC ${generated})
target_link_libraries(postbox_messages PUBLIC postbox_grpc)
add_library(postbox_proto STATIC ${proto_services})
target_link_libraries(postbox_proto PUBLIC postbox_messages)
set_target_properties(postbox_messages postbox_proto PROPERTIES COMPILE_WARNING_AS_ERROR OFF)  # not ours

# What the subcommands of the executable share, and no module of the server has.
sources(files worker/base)
united(files ${files})
add_library(postbox_base STATIC ${files})
target_link_libraries(postbox_base PUBLIC postbox_warnings Threads::Threads)

# The parsers of bytes from outside and the emulator's broker know messages but no gRPC. What stands apart is compiled quickly:
# the fuzz targets are built of it, with sanitizers.
set(plain pubsub/http_client pubsub/auth/credentials_file pubsub/publish/message_wire pubsub/publish/outgoing_message pubsub/pull/ack_results pubsub/pull/ack_wire pubsub/pull/pull_wire
    puller/received_event emulator/faults emulator/auth/access)
list(TRANSFORM plain PREPEND ${CMAKE_SOURCE_DIR}/worker/)
list(TRANSFORM plain APPEND .cc)
sources(parts worker/emulator/rules worker/emulator/schema worker/emulator/store worker/emulator/subscription worker/emulator/broker)
list(APPEND plain ${parts})
united(files ${plain})
add_library(postbox_plain STATIC ${files})
target_link_libraries(postbox_plain PUBLIC postbox_warnings postbox_base postbox_messages nlohmann_json::nlohmann_json PkgConfig::CURL PkgConfig::SQLITE)

# The executable. (proto/rules/ holds headers only: each includer compiles them.)
function(part name rooms)
  sources(files ${rooms})
  list(REMOVE_ITEM files ${plain})
  united(files ${files})
  add_library(${name} STATIC ${files})
  target_link_libraries(${name} PUBLIC postbox_warnings ${ARGN})
endfunction()
set(pubsub_rooms worker/pubsub worker/pubsub/auth worker/pubsub/traces worker/pubsub/publish worker/pubsub/pull)
part(postbox_pubsub "${pubsub_rooms}" postbox_plain postbox_proto absl::flat_hash_map absl::strings absl::synchronization absl::time OpenSSL::Crypto
     Threads::Threads)
if(POSTBOX_UNITED)
  target_compile_options(postbox_pubsub PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # an Impl of types that no other file sees, in a file that is included
endif()
part(postbox_emulator "worker/emulator;worker/emulator/auth" postbox_plain postbox_proto OpenSSL::Crypto Threads::Threads)
target_link_libraries(postbox_emulator PRIVATE PkgConfig::HTTPLIB)
part(postbox_metrics worker/metrics PkgConfig::PROMETHEUS Threads::Threads)
part(postbox_puller worker/puller postbox_pubsub postbox_metrics PkgConfig::LIBPQ PkgConfig::SYSTEMD nlohmann_json::nlohmann_json spdlog::spdlog)
part(postbox_cli_base worker/cli/base postbox_puller)
part(postbox_metrics_command worker/cli/metrics postbox_cli_base)
part(postbox_provision worker/cli/provision postbox_cli_base yaml-cpp::yaml-cpp)
part(postbox_audit worker/cli/audit postbox_cli_base)
part(postbox_console worker/cli/console postbox_provision OpenSSL::Crypto PkgConfig::HTTPLIB)
target_sources(postbox_console PRIVATE ${page_source})
sources(cli_files worker/cli/doctor worker/cli/admin worker/cli/completion worker/cli/rebuild worker/cli)
united(cli_files ${cli_files})
add_executable(postbox ${cli_files})
target_link_libraries(postbox PRIVATE postbox_provision postbox_audit postbox_console postbox_metrics_command postbox_emulator CLI11::CLI11)
# What makes shells complete its command line stands beside it whenever it is built.
set(completions ${CMAKE_BINARY_DIR}/completions)
foreach(shell bash zsh fish)
  add_custom_command(TARGET postbox POST_BUILD BYPRODUCTS ${completions}/${shell}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
    COMMAND postbox completion ${shell} > ${completions}/${shell} VERBATIM)
endforeach()

# extension/base, trust and shared are compiled once and are in both modules of the server.
foreach(room base trust shared)
  sources(files extension/${room})
  united(files ${files})
  add_library(extension_${room} OBJECT ${files})
  target_link_libraries(extension_${room} PUBLIC postbox_warnings postgres_server)
endforeach()

# postbox.so: every backend loads it, so it links neither gRPC nor protobuf.
sources(files extension/lifecycle extension/registry extension/emit extension/apply)
united(files ${files})
add_library(extension MODULE ${files})
set_target_properties(extension PROPERTIES PREFIX "" OUTPUT_NAME postbox)
target_link_libraries(extension PRIVATE extension_base extension_trust extension_shared)

# postbox_worker.so: only the publisher worker loads it. All of it but the entry is there once, for the
# benchmarks as well; what of it knows no Postgres is in publisher_logic, for unit tests.
set(publisher_rooms policy base store source delivery source/log source/table)
list(TRANSFORM publisher_rooms PREPEND worker/publisher/)
list(APPEND publisher_rooms worker/publisher)
sources(files ${publisher_rooms})
set(worker_entry ${CMAKE_SOURCE_DIR}/worker/publisher/main.cc)
set(registration ${CMAKE_SOURCE_DIR}/worker/publisher/base/registration.cc)  # apart: a test compiles it again for another layout
set(logic ${files})
list(FILTER logic INCLUDE REGEX "(_logic|/claimed_event|/policy/[a-z_]+)\\.cc$")
list(REMOVE_ITEM files ${worker_entry} ${registration} ${logic})
united(files ${files})
united(logic ${logic})
add_library(publisher_logic STATIC ${logic})
target_link_libraries(publisher_logic PUBLIC postbox_warnings)
add_library(publisher_core OBJECT ${files} ${registration})
target_link_libraries(publisher_core PUBLIC postbox_warnings postgres_server postbox_pubsub publisher_logic)
add_library(publisher_worker MODULE ${worker_entry})
# What knows its own version: the executable, the client's user agent, and both modules of the server.
foreach(part postbox postbox_plain postbox_pubsub postbox_puller extension_base extension publisher_worker)
  target_compile_definitions(${part} PRIVATE POSTBOX_VERSION="${PROJECT_VERSION}")
endforeach()
set_target_properties(publisher_worker PROPERTIES PREFIX "" OUTPUT_NAME postbox_worker)
target_link_libraries(publisher_worker PRIVATE publisher_core extension_base extension_trust extension_shared)

foreach(module extension publisher_worker)
  target_link_options(${module} PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
endforeach()

# The install script is made of sql/install, and a script that leads to it from each release of the functions there and the
# migrations of sql/upgrade (control/check-upgrade).
file(GLOB_RECURSE sql_parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/sql/*.sql)
set(install_script ${CMAKE_BINARY_DIR}/postbox--${PROJECT_VERSION}.sql)
add_custom_command(OUTPUT ${install_script}
  COMMAND ${CMAKE_SOURCE_DIR}/control/install-script > ${install_script}
  DEPENDS ${sql_parts} ${CMAKE_SOURCE_DIR}/control/install-script VERBATIM)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/sql/upgrade/releases)
file(STRINGS ${CMAKE_SOURCE_DIR}/sql/upgrade/releases releases REGEX "^[0-9]")
foreach(release ${releases})
  string(REGEX REPLACE " .*" "" release ${release})
  if(NOT release STREQUAL PROJECT_VERSION)
    set(script ${CMAKE_BINARY_DIR}/postbox--${release}--${PROJECT_VERSION}.sql)
    add_custom_command(OUTPUT ${script}
      COMMAND ${CMAKE_SOURCE_DIR}/control/upgrade-script ${release} > ${script}
      DEPENDS ${sql_parts} ${CMAKE_SOURCE_DIR}/control/upgrade-script VERBATIM)
    list(APPEND upgrade_scripts ${script})
  endif()
endforeach()
add_custom_target(install_script ALL DEPENDS ${install_script} ${upgrade_scripts})
configure_file(${CMAKE_SOURCE_DIR}/control/postbox.control.in ${CMAKE_BINARY_DIR}/postbox.control @ONLY)
