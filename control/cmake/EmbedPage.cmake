# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# Writes the source file with all files of the console's page, for worker/cli/console/page_files.h:
#   cmake -D PAGE=DIRECTORY -D FILES=NAME,... -D MODULES=DIRECTORY -D LIBRARIES=NAME=FILE,... -D LICENCES=FILE,... -D OUTPUT=FILE -D TERMS=FILE -P EmbedPage.cmake
# A file of the page is served as page/NAME and a library as page/lib/NAME; index.html is the page itself, with the empty name.
cmake_minimum_required(VERSION 3.25)
foreach(list FILES LIBRARIES LICENCES)
  string(REPLACE "," ";" ${list} "${${list}}")
endforeach()

set(type_of_html "text/html; charset=utf-8")
set(type_of_css "text/css; charset=utf-8")
set(type_of_js "text/javascript; charset=utf-8")
set(type_of_svg "image/svg+xml")
set(type_of_txt "text/plain; charset=utf-8")

# add_file(NAME TEXT): one entry of the table. The tag is of the content, so it changes with it and only then.
set(entries "")
function(add_file name text)
  if(NOT name MATCHES "^[a-z0-9_/.-]+\\.(html|css|js|svg|txt)$")
    message(FATAL_ERROR "${name}: a file of the page has a name in lower case that ends with .html, .css, .js, .svg or .txt")
  endif()
  set(type "${type_of_${CMAKE_MATCH_1}}")
  string(FIND "${text}" ")postbox\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${name} has what ends a text of C++")
  endif()
  string(SHA256 tag "${text}")
  string(SUBSTRING ${tag} 0 32 tag)
  if(name STREQUAL "page/index.html")
    set(name "")
  endif()
  set(entries "${entries}    {\"${name}\", \"${type}\", \"\\\"${tag}\\\"\", R\"postbox(${text})postbox\"sv},\n" PARENT_SCOPE)
endfunction()

foreach(file ${FILES})
  file(READ "${PAGE}/${file}" text)
  add_file("page/${file}" "${text}")
endforeach()

# A module of the page finds another one by its place beside it; a library names it as npm does. Its map is not embedded.
foreach(library ${LIBRARIES})
  string(REGEX MATCH "^([^=]+)=(.+)$" library "${library}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${MODULES}/${CMAKE_MATCH_2}" text)
  string(REGEX REPLACE "\n?//# sourceMappingURL=[^\n]*" "" text "${text}")
  if(name STREQUAL "hooks.js")
    string(REPLACE "from\"preact\"" "from\"./preact.js\"" changed "${text}")
    string(LENGTH "${text}" before)
    string(LENGTH "${changed}" after)
    math(EXPR longer "${after} - ${before}")
    if(NOT longer EQUAL 5)  # "./" and ".js"
      message(FATAL_ERROR "${library} does not import preact exactly once")
    endif()
    set(text "${changed}")
  endif()
  if(text MATCHES "sourceMappingURL" OR text MATCHES "(from|import) *[\"'][^.\"'][^\"'\n;]*[\"']")
    message(FATAL_ERROR "${library} names what is not served: ${CMAKE_MATCH_0}")
  endif()
  add_file("page/lib/${name}" "${text}")
endforeach()

set(text "The page of postbox console has these libraries in it.\n")
foreach(licence ${LICENCES})
  string(REGEX REPLACE "/.*" "" name "${licence}")
  file(READ "${MODULES}/${licence}" terms)
  string(APPEND text "\n== ${name}\n\n${terms}\n")
endforeach()
add_file("page/lib/licenses.txt" "${text}")
file(WRITE "${TERMS}" "${text}")

file(WRITE "${OUTPUT}" "// Made by EmbedPage.cmake.
#include <iterator>
#include <string_view>

#include \"worker/cli/console/page_files.h\"

namespace postbox::cli {
namespace {

using std::string_view_literals::operator\"\"sv;

constexpr PageFile kPageFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> PageFiles() { return kPageFiles; }

}  // namespace postbox::cli
")
