# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# The page of `postbox console`: its files and its libraries, embedded as one source file (EmbedPage.cmake). The libraries come from npm,
# in the versions of package.json beside the page. `page_source` is the source file.
set(page ${CMAKE_SOURCE_DIR}/worker/cli/console/page)
set(POSTBOX_PAGE_MODULES ${page}/node_modules CACHE PATH "Where npm has installed the libraries of the console's page")

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page}/package.json)
file(READ ${page}/package.json package)
string(JSON count LENGTH "${package}" dependencies)
math(EXPR last "${count} - 1")
foreach(index RANGE ${last})
  string(JSON name MEMBER "${package}" dependencies ${index})
  string(JSON wanted GET "${package}" dependencies ${name})
  set(found "no")
  if(EXISTS ${POSTBOX_PAGE_MODULES}/${name}/package.json)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${POSTBOX_PAGE_MODULES}/${name}/package.json)
    file(READ ${POSTBOX_PAGE_MODULES}/${name}/package.json installed)
    string(JSON found GET "${installed}" version)
  endif()
  if(NOT found STREQUAL wanted)
    message(FATAL_ERROR "the console's page needs ${name} ${wanted}, and there is ${found} ${name} in ${POSTBOX_PAGE_MODULES}; "
                        "run npm ci --ignore-scripts in worker/cli/console/page, or pass -DPOSTBOX_PAGE_MODULES=DIRECTORY of a node_modules "
                        "that has it. control/build does all of this.")
  endif()
endforeach()

# A file that is put beside the others is served. What is for npm and for readers is not.
file(GLOB_RECURSE page_files CONFIGURE_DEPENDS RELATIVE ${page} ${page}/*)
list(FILTER page_files EXCLUDE REGEX "^node_modules/|^package(-lock)?\\.json$|\\.md$")
# NAME=FILE in the directory of modules, for each library; then the texts of their licences.
set(page_libraries preact.js=preact/dist/preact.module.js hooks.js=preact/hooks/dist/hooks.module.js htm.js=htm/dist/htm.module.js
    uplot.js=uplot/dist/uPlot.esm.js uplot.css=uplot/dist/uPlot.min.css)
set(page_licences preact/LICENSE htm/LICENSE uplot/LICENSE)

set(page_source ${CMAKE_BINARY_DIR}/page_source.cc)
set(page_terms ${CMAKE_BINARY_DIR}/page_licenses.txt)  # for packages
set(needed ${page_libraries})
list(TRANSFORM needed REPLACE "^.*=" "")
list(APPEND needed ${page_licences})
list(TRANSFORM needed PREPEND ${POSTBOX_PAGE_MODULES}/)
list(TRANSFORM page_files PREPEND ${page}/ OUTPUT_VARIABLE page_paths)
# Lists within an argument, and names that decide when the file is made again.
list(JOIN page_files "," embedded)
list(JOIN page_libraries "," libraries)
list(JOIN page_licences "," licences)
add_custom_command(OUTPUT ${page_source} ${page_terms}
  COMMAND ${CMAKE_COMMAND} -D PAGE=${page} -D FILES=${embedded} -D MODULES=${POSTBOX_PAGE_MODULES} -D LIBRARIES=${libraries}
          -D LICENCES=${licences} -D OUTPUT=${page_source} -D TERMS=${page_terms} -P ${CMAKE_SOURCE_DIR}/control/cmake/EmbedPage.cmake
  DEPENDS ${page_paths} ${needed} ${CMAKE_SOURCE_DIR}/control/cmake/EmbedPage.cmake
  COMMENT "Embedding the page of the console" VERBATIM)
