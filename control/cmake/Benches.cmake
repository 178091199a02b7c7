# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# What bench/run needs beside Postbox itself. None of it is installed.
set(missing)
find_path(VALGRIND_REQUESTS valgrind/callgrind.h)
if(NOT VALGRIND_REQUESTS)
  note_missing(valgrind/callgrind.h valgrind)
endif()
stop_if_missing()

add_library(postbox_bench MODULE ${CMAKE_SOURCE_DIR}/bench/drain.cc ${CMAKE_SOURCE_DIR}/bench/usage.cc)
set_target_properties(postbox_bench PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
target_include_directories(postbox_bench SYSTEM PRIVATE ${VALGRIND_REQUESTS})
target_link_libraries(postbox_bench PRIVATE publisher_core extension_base extension_trust extension_shared)
target_link_options(postbox_bench PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)

foreach(program counting_server bare_publish bare_pull pull_server)
  add_executable(${program} ${CMAKE_SOURCE_DIR}/bench/${program}.cc)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  target_link_libraries(${program} PRIVATE postbox_warnings postbox_proto)
endforeach()
