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

# Generated code is compiled without our warnings; everything of ours with them.
add_library(postbox_warnings INTERFACE)
target_compile_options(postbox_warnings INTERFACE -Wall -Wextra -Werror)
target_include_directories(postbox_warnings INTERFACE ${CMAKE_SOURCE_DIR})
