# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# Every test under one ctest. Whole-system tests need the stage (target `stage`).
#
# The same names go into tests.list in the build directory, for control/test NAME, one test a line:
#   unit TARGET FILE      a file with TEST(Suite, Name): the tests are unit.Suite.Name of this target, and all of them unit.TARGET
#   system NAME TARGET... what must be built before this test is run
enable_testing()
set(missing)
need_package(GTest "libgtest-dev;libgmock-dev")
stop_if_missing()
set(test_list)

# What the tests of the server load beside Postbox. None of it is installed.
add_library(postbox_test MODULE ${CMAKE_SOURCE_DIR}/tests/support/postbox_test.cc)
set_target_properties(postbox_test PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(postbox_test PRIVATE publisher_core extension_base extension_trust extension_shared)
target_link_options(postbox_test PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)

# What gives the programs of a test host names of its own.
add_library(own_hosts MODULE ${CMAKE_SOURCE_DIR}/tests/support/own_hosts.cc)
set_target_properties(own_hosts PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(own_hosts PRIVATE postbox_warnings)

# A collector of traces, which prints the spans that it gets.
add_executable(otlp_collector ${CMAKE_SOURCE_DIR}/tests/support/otlp_collector.cc)
set_target_properties(otlp_collector PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(otlp_collector PRIVATE postbox_warnings postbox_proto)

# The same worker of a release with another shared memory, for the test of an upgrade while running.
sources(files extension/shared)
add_library(other_release_worker MODULE ${files} ${worker_entry} ${registration}
            $<FILTER:$<TARGET_OBJECTS:publisher_core>,EXCLUDE,registration>)
set_target_properties(other_release_worker PROPERTIES PREFIX "" OUTPUT_NAME postbox_worker
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/other_release)
target_compile_definitions(other_release_worker PRIVATE POSTBOX_SHARED_STATE_LAYOUT=1 POSTBOX_VERSION="${PROJECT_VERSION}")
target_link_libraries(other_release_worker PRIVATE postbox_pubsub publisher_logic extension_base extension_trust)
target_link_options(other_release_worker PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)

# The tests of rooms, which stand beside what they test.
function(unit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "ROOMS;LINK")
  test_sources(files ${test_ROOMS})
  united(compiled ${files})
  add_executable(${name} ${compiled})
  target_link_libraries(${name} PRIVATE postbox_warnings GTest::gtest GTest::gmock GTest::gtest_main ${test_LINK})
  # All of a program in one process: to start one for each test took longer than the tests.
  add_test(NAME unit.${name} COMMAND ${name})
  set_tests_properties(unit.${name} PROPERTIES TIMEOUT 600 LABELS unit)
  add_dependencies(unit_tests ${name})
  list(TRANSFORM files PREPEND "unit ${name} ")
  list(APPEND test_list ${files})
  set(test_list ${test_list} PARENT_SCOPE)
endfunction()
add_custom_target(unit_tests)
unit_test(rules_test ROOMS proto/rules extension/rules)
unit_test(extension_test ROOMS extension/apply)
unit_test(base_test ROOMS worker/base LINK postbox_base)
unit_test(pubsub_test ROOMS ${pubsub_rooms} LINK postbox_pubsub)
unit_test(emulator_test ROOMS worker/emulator worker/emulator/rules worker/emulator/schema worker/emulator/store worker/emulator/subscription
          worker/emulator/auth worker/emulator/broker LINK postbox_emulator)
unit_test(metrics_test ROOMS worker/metrics LINK postbox_metrics)
unit_test(puller_test ROOMS worker/puller LINK postbox_puller)
unit_test(provision_test ROOMS worker/cli/provision LINK postbox_provision)
unit_test(audit_test ROOMS worker/cli/audit LINK postbox_audit)
unit_test(console_test ROOMS worker/cli/console LINK postbox_console)
unit_test(publisher_test ROOMS ${publisher_rooms} LINK publisher_logic postbox_pubsub)

# A server that closes its connections five times a second is no trouble beside busy loops. But where the machine has so much to do that a request
# meets four closed connections one after the other, that is a failure.
set(closing PublisherTest.RequestsThatWaitForAStreamOutliveTheConnectionsThatAServerCloses)
add_test(NAME unit.pubsub_test_alone COMMAND pubsub_test --gtest_filter=${closing})
set_tests_properties(unit.pubsub_test_alone PROPERTIES TIMEOUT 600 LABELS unit RUN_SERIAL ON FAIL_REGULAR_EXPRESSION "Running 0 tests")
set_tests_properties(unit.pubsub_test PROPERTIES ENVIRONMENT GTEST_FILTER=-${closing})

include(Fuzz)          # tests/fuzz

set(POSTBOX_TEST_TIMEOUT 600 CACHE STRING "Seconds that a test of the server may take")
# Install scripts of releases, for the tests of upgrades: the true ones, and one from which an upgrade is rehearsed.
set(released ${CMAKE_BINARY_DIR}/released)
add_custom_command(OUTPUT ${released}/postbox--0.0.1.sql
  COMMAND ${CMAKE_SOURCE_DIR}/tests/upgrade/earlier-release ${released}
  DEPENDS ${install_script} ${sql_parts} ${CMAKE_SOURCE_DIR}/sql/upgrade/releases ${CMAKE_SOURCE_DIR}/tests/upgrade/earlier-release ${CMAKE_SOURCE_DIR}/tests/upgrade/lib.sh
          ${CMAKE_SOURCE_DIR}/control/check-upgrade ${CMAKE_SOURCE_DIR}/control/upgrade-script
          ${CMAKE_SOURCE_DIR}/control/released-script ${CMAKE_SOURCE_DIR}/control/release ${CMAKE_SOURCE_DIR}/control/version VERBATIM)
add_custom_target(released_scripts ALL DEPENDS ${released}/postbox--0.0.1.sql)
set(system_test_needs stage other_release_worker postbox_test own_hosts otlp_collector released_scripts)
function(system_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "POSTBOX_BUILD_DIR=${CMAKE_BINARY_DIR};POSTBOX_BUILT=1"
    SKIP_RETURN_CODE 77 TIMEOUT ${POSTBOX_TEST_TIMEOUT} LABELS system)
  string(JOIN " " line system ${name} ${system_test_needs})
  set(test_list ${test_list} ${line} PARENT_SCOPE)
endfunction()
system_test(checks.modules ${CMAKE_SOURCE_DIR}/control/check modules)
system_test(checks.fence ${CMAKE_SOURCE_DIR}/tests/checks/run)
system_test(checks.upgrade ${CMAKE_SOURCE_DIR}/control/check-upgrade)
system_test(checks.upgrade_test ${CMAKE_SOURCE_DIR}/tests/checks/test_upgrade)
system_test(checks.left_running ${CMAKE_SOURCE_DIR}/tests/checks/test_left_running)
system_test(checks.cmake ${CMAKE_SOURCE_DIR}/tests/checks/test_cmake)
system_test(checks.reproducible ${CMAKE_SOURCE_DIR}/tests/checks/test_reproducible)
system_test(checks.service ${CMAKE_SOURCE_DIR}/tests/checks/test_service)
system_test(checks.reference ${CMAKE_SOURCE_DIR}/tests/checks/test_reference)
system_test(checks.tidy ${CMAKE_SOURCE_DIR}/tests/checks/test_tidy)
system_test(checks.monitoring ${CMAKE_SOURCE_DIR}/tests/checks/test_monitoring)
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
# All take the port that the emulator has by default.
set_tests_properties(e2e.emulator_executable e2e.quick_start e2e.tutorial PROPERTIES RESOURCE_LOCK port_8085)
if(EXISTS ${CMAKE_SOURCE_DIR}/tests/proto/run)
  system_test(proto.official_definitions ${CMAKE_SOURCE_DIR}/tests/proto/run)
endif()
# The models, which need nothing built.
set(system_test_needs)
file(GLOB models CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/models/*.pml)
foreach(file ${models})
  get_filename_component(name ${file} NAME_WE)
  system_test(models.${name} ${CMAKE_SOURCE_DIR}/control/check-models ${name})
endforeach()
# Each benchmark for seconds: that its figures come, not how good they are. Those that take least share a server.
set(system_test_needs stage postbox_bench counting_server bare_publish bare_pull pull_server)
foreach(name neighbours torture soak tenants scrape)
  system_test(bench.${name} ${CMAKE_SOURCE_DIR}/bench/smoke ${name})
endforeach()
system_test(bench.database ${CMAKE_SOURCE_DIR}/bench/smoke drain backlog status wal held-transaction emit changes backfill rebuild republish wait cost audit)
system_test(bench.publishing ${CMAKE_SOURCE_DIR}/bench/smoke publish pull parked latency fairness)
system_test(bench.far ${CMAKE_SOURCE_DIR}/bench/smoke publish apply --round-trip 20)
system_test(bench.counts ${CMAKE_SOURCE_DIR}/bench/run counts --compare)

# What takes longest begins first, also where ctest has not run before.
set_tests_properties(bench.counts e2e.fault_matrix e2e.alerts tap.dba_week tap.memory_of_worker e2e.provision_google regress tap.publish_retry
  tap.burst tap.backlog_overtaken tap.log_restore tap.publication_resume tap.copies tap.hostile_block tap.publication_in_place tap.failover
  tap.broker_moves tap.log_retention tap.puller_connections tap.idle tap.parked_backlog e2e.identities models.log_backlog
  tap.missing_workers bench.neighbours unit.pubsub_test PROPERTIES COST 100)

string(REPLACE ";" "\n" test_list "${test_list}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tests.list CONTENT "${test_list}\n" @ONLY)
