# `stage`: a private copy of the Postgres installation with Postbox in it, so that tests and the demo
# never touch the installed one. Postgres finds its files relative to its binary, so a copy just works.
# `install` puts Postbox into the real installation.
set(STAGE ${CMAKE_BINARY_DIR}/stage)
add_custom_target(stage
  COMMAND ${CMAKE_SOURCE_DIR}/control/copy-postgres ${PG_CONFIG} ${STAGE}
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:extension> $<TARGET_FILE:publisher_worker> ${STAGE}${PG_PKGLIBDIR}/
  COMMAND find ${STAGE}${PG_SHAREDIR}/extension -name postbox--*.sql -delete
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_BINARY_DIR}/postbox.control ${install_script} ${upgrade_scripts}
          ${STAGE}${PG_SHAREDIR}/extension/
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:postbox> ${STAGE}/usr/local/bin/
  # Install scripts of releases, for the test of upgrades.
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/released
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/sql/upgrade/from ${CMAKE_BINARY_DIR}/released
  DEPENDS extension publisher_worker postbox install_script
  VERBATIM)

install(TARGETS extension publisher_worker LIBRARY DESTINATION ${PG_PKGLIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/postbox.control ${install_script} ${upgrade_scripts}
        DESTINATION ${PG_SHAREDIR}/extension)
install(TARGETS postbox RUNTIME DESTINATION bin)
