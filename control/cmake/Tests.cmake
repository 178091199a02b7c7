# Every test under one ctest. Whole-system tests need the stage (target `stage`).
enable_testing()
include(GoogleTest)

# The tests of rooms, which stand beside what they test.
function(unit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "ROOMS;WITH;LINK")
  test_sources(files ${test_ROOMS})
  add_executable(${name} ${files} ${test_WITH})
  target_link_libraries(${name} PRIVATE postbox_warnings GTest::gtest GTest::gmock GTest::gtest_main ${test_LINK})
  gtest_discover_tests(${name} TEST_PREFIX unit. DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 120 LABELS unit)
endfunction()
unit_test(rules_test ROOMS proto/rules)
unit_test(pubsub_test ROOMS worker/pubsub LINK postbox_pubsub)
unit_test(emulator_test ROOMS worker/emulator LINK postbox_emulator)
unit_test(puller_test ROOMS worker/puller LINK postbox_puller)
# What of the publisher knows no Postgres.
file(GLOB_RECURSE logic CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/worker/publisher/*_logic.cc)
unit_test(publisher_test ROOMS worker/publisher worker/publisher/log worker/publisher/table
          WITH ${logic} ${CMAKE_SOURCE_DIR}/worker/publisher/claimed_event.cc LINK postbox_pubsub)

function(system_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "POSTBOX_BUILD_DIR=${CMAKE_BINARY_DIR};POSTBOX_BUILT=1"
    SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS system)
endfunction()
system_test(checks.layering ${CMAKE_SOURCE_DIR}/control/check layering)
system_test(regress ${CMAKE_SOURCE_DIR}/control/run-regress)
system_test(isolation ${CMAKE_SOURCE_DIR}/control/run-isolation)
file(GLOB tap CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/tap/*.pl)
foreach(file ${tap})
  get_filename_component(name ${file} NAME_WE)
  system_test(tap.${name} ${CMAKE_SOURCE_DIR}/control/run-tap ${file})
endforeach()
file(GLOB e2e CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/e2e/test_*)
foreach(file ${e2e})
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "^test_" "" name ${name})
  system_test(e2e.${name} ${file})
endforeach()
if(EXISTS ${CMAKE_SOURCE_DIR}/tests/proto/run)
  system_test(proto.official_definitions ${CMAKE_SOURCE_DIR}/tests/proto/run)
endif()
# Each benchmark for seconds: that its figures come, not how good they are.
foreach(name drain backlog wal held-transaction publish latency emit torture)
  system_test(bench.${name} ${CMAKE_SOURCE_DIR}/bench/smoke ${name})
endforeach()
