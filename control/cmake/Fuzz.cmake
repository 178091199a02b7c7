# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# The fuzz targets of tests/fuzz: `attributes_fuzz.cc` becomes the program fuzz_attributes, and the test fuzz.attributes runs it with as many random
# inputs as take a second or two, always the same ones. `control/fuzz` runs it for longer.
function(fuzz_target name runs)
  set(folder ${CMAKE_SOURCE_DIR}/tests/fuzz)
  add_executable(fuzz_${name} ${folder}/${name}_fuzz.cc)
  target_link_libraries(fuzz_${name} PRIVATE fuzzer ${ARGN})
  add_dependencies(fuzz_targets fuzz_${name})
  add_test(NAME fuzz.${name} COMMAND fuzz_${name} ${folder}/corpus/${name}.txt --seed 1 --runs ${runs})
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 300 LABELS fuzz)
  set(test_list ${test_list} "system fuzz.${name} fuzz_${name}" PARENT_SCOPE)
endfunction()

# What makes the inputs.
add_custom_target(fuzz_targets)
add_library(fuzzer INTERFACE)
target_link_libraries(fuzzer INTERFACE postbox_warnings)
if(POSTBOX_FUZZER)
  target_link_options(fuzzer INTERFACE -fsanitize=fuzzer)
else()
  add_library(fuzz_driver STATIC ${CMAKE_SOURCE_DIR}/tests/fuzz/random_driver.cc)
  target_link_libraries(fuzz_driver PRIVATE postbox_warnings)
  target_link_libraries(fuzzer INTERFACE fuzz_driver)
endif()

fuzz_target(attributes 200000)
fuzz_target(log_position 200000 publisher_logic)
fuzz_target(json_scan 100000)
fuzz_target(names 100000 postbox_plain)
fuzz_target(message_wire 100000 postbox_plain)
fuzz_target(ack_results 100000 postbox_plain)
fuzz_target(credentials 5000 postbox_plain)
fuzz_target(received_event 50000 postbox_plain)
fuzz_target(emulator_specs 50000 postbox_plain)
fuzz_target(emulator_filter 100000 postbox_plain)
fuzz_target(emulator_requests 50000 postbox_plain)
fuzz_target(emulator_schemas 1000 postbox_plain)

# That mistakes are reported, and fail.
if(NOT POSTBOX_FUZZER)
  add_executable(fuzz_planted ${CMAKE_SOURCE_DIR}/tests/fuzz/planted.cc)
  target_link_libraries(fuzz_planted PRIVATE fuzzer Threads::Threads)
  add_test(NAME fuzz.planted COMMAND ${CMAKE_SOURCE_DIR}/tests/fuzz/test_planted $<TARGET_FILE:fuzz_planted> "${POSTBOX_SANITIZE}")
  set_tests_properties(fuzz.planted PROPERTIES TIMEOUT 300 LABELS fuzz)
  list(APPEND test_list "system fuzz.planted fuzz_planted")
endif()
