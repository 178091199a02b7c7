# What Postbox builds on, all from the distribution. (GoogleTest: see Tests.cmake.)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(absl REQUIRED)
pkg_check_modules(LIBPQ REQUIRED IMPORTED_TARGET libpq)

# gRPC and protobuf. pkg-config takes more than ten seconds for the hundred modules that grpc++ requires, so
# gRPC's own CMake files come first, where the distribution has them.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG QUIET)
add_library(postbox_grpc INTERFACE)
if(gRPC_FOUND)
  target_link_libraries(postbox_grpc INTERFACE gRPC::grpc++ protobuf::libprotobuf)
else()
  pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc++)
  target_link_libraries(postbox_grpc INTERFACE PkgConfig::GRPC protobuf::libprotobuf)
endif()
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

# Newest server first; -DPG_CONFIG=... chooses another one.
find_program(PG_CONFIG pg_config
  PATHS /usr/lib/postgresql/18/bin /usr/lib/postgresql/17/bin /usr/lib/postgresql/16/bin
        /usr/lib/postgresql/15/bin /usr/lib/postgresql/14/bin
  NO_DEFAULT_PATH)
if(NOT PG_CONFIG)
  message(FATAL_ERROR "no pg_config of a PostgreSQL server found: install postgresql-server-dev-15 or pass -DPG_CONFIG=...")
endif()
function(pg_config_value option variable)
  execute_process(COMMAND ${PG_CONFIG} --${option} OUTPUT_VARIABLE value
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} ${value} PARENT_SCOPE)
endfunction()
pg_config_value(includedir-server PG_INCLUDE_SERVER)
pg_config_value(includedir PG_INCLUDE)
pg_config_value(pkglibdir PG_PKGLIBDIR)
pg_config_value(sharedir PG_SHAREDIR)
pg_config_value(bindir PG_BINDIR)
pg_config_value(pgxs PG_PGXS)
pg_config_value(version PG_VERSION_TEXT)
string(REGEX MATCH "[0-9]+" PG_MAJOR "${PG_VERSION_TEXT}")
if(PG_MAJOR LESS 14 OR PG_MAJOR GREATER 18)
  message(FATAL_ERROR "Postbox is written for PostgreSQL 14 to 18; ${PG_CONFIG} belongs to ${PG_VERSION_TEXT}")
endif()

add_library(postgres_server INTERFACE)
target_include_directories(postgres_server SYSTEM INTERFACE ${PG_INCLUDE_SERVER})
target_compile_definitions(postgres_server INTERFACE _GNU_SOURCE)
target_compile_options(postgres_server INTERFACE -fwrapv -fno-strict-aliasing -Wno-missing-field-initializers -Wno-register)
