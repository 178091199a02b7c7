# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# Language level, warnings and visibility: the same for every part.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)  # the headers of Postgres use GNU extensions
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")  # what control/test --gdb and --valgrind build

# Where the tree and the build directory are is in nothing that is built: two builds of one commit are equal. Sources are
# named relative to the tree, so a debugger that is started there finds them; a debug build keeps the full names. ccache
# may hand the compiler relative names instead (CCACHE_BASEDIR). The last map that matches counts, and either directory may
# stand within the other.
file(RELATIVE_PATH tree_from_build ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
string(REGEX REPLACE "/$" "" tree_from_build "${tree_from_build}")
set(tree_maps "${CMAKE_SOURCE_DIR}=." "${tree_from_build}=.")
set(build_maps "${CMAKE_BINARY_DIR}=build" "${CMAKE_BINARY_DIR}/=")
string(FIND "${CMAKE_SOURCE_DIR}/" "${CMAKE_BINARY_DIR}/" tree_in_build)
if(tree_in_build EQUAL 0)
  set(maps ${build_maps} ${tree_maps})
else()
  set(maps ${tree_maps} ${build_maps})
endif()
foreach(map ${maps})
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-ffile-prefix-map=${map}>)
endforeach()

# Values of -fsanitize=. They are for the unit tests: a module with AddressSanitizer in it cannot be
# loaded into a server that was built without. gRPC, protobuf and abseil are the distribution's, so
# nothing in them is checked; control/sanitizers holds what has to be suppressed for that reason.
set(POSTBOX_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined or thread")
if(POSTBOX_SANITIZE)
  add_compile_options(-fsanitize=${POSTBOX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${POSTBOX_SANITIZE})
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g -DNDEBUG")
endif()

# libFuzzer finds new ways through code that clang has compiled for it (control/fuzz).
option(POSTBOX_FUZZER "Build the fuzz targets with libFuzzer; needs clang" OFF)
if(POSTBOX_FUZZER)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Generated code is compiled without our warnings; everything of ours with them. They are errors in our own builds
# (control/build sets CMAKE_COMPILE_WARNING_AS_ERROR), not in those of packages.
add_library(postbox_warnings INTERFACE)
target_compile_options(postbox_warnings INTERFACE -Wall -Wextra)
target_include_directories(postbox_warnings INTERFACE ${CMAKE_SOURCE_DIR})
