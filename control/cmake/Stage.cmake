# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
#
# `stage`: a private copy of the Postgres installation with Postbox in it, so that tests and the demo
# never touch the installed one. Postgres finds its files relative to its binary, so a copy just works.
# `install` puts Postbox into the real installation.
include(GNUInstallDirs)
set(STAGE ${CMAKE_BINARY_DIR}/stage)
add_custom_target(stage
  COMMAND ${CMAKE_SOURCE_DIR}/control/copy-postgres ${PG_CONFIG} ${STAGE}
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:extension> $<TARGET_FILE:publisher_worker> ${STAGE}${PG_PKGLIBDIR}/
  COMMAND find ${STAGE}${PG_SHAREDIR}/extension -name postbox--*.sql -delete
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_BINARY_DIR}/postbox.control ${install_script} ${upgrade_scripts}
          ${STAGE}${PG_SHAREDIR}/extension/
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:postbox> ${STAGE}/usr/local/bin/
  DEPENDS extension publisher_worker postbox install_script
  VERBATIM)

# Two components: `extension` belongs to one version of Postgres, `tools` to none.
#   cmake --install DIR --component extension
install(TARGETS extension publisher_worker LIBRARY DESTINATION ${PG_PKGLIBDIR} COMPONENT extension)
install(FILES ${CMAKE_BINARY_DIR}/postbox.control ${install_script} ${upgrade_scripts}
        DESTINATION ${PG_SHAREDIR}/extension COMPONENT extension)
install(TARGETS postbox RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)

# A service for each puller, and an example of its configuration.
set(POSTBOX_UNIT_DIR lib/systemd/system CACHE STRING "Where units of systemd are installed")
configure_file(${CMAKE_SOURCE_DIR}/control/systemd/postbox-pull.service.in ${CMAKE_BINARY_DIR}/postbox-pull@.service @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/postbox-pull@.service DESTINATION ${POSTBOX_UNIT_DIR} COMPONENT tools)
install(FILES ${CMAKE_SOURCE_DIR}/control/systemd/pull.conf ${CMAKE_SOURCE_DIR}/control/exporters/postgres-exporter.yml
              ${CMAKE_SOURCE_DIR}/control/exporters/sql-exporter.yml DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT tools)

# Where each shell looks for what completes a command. Debian's zsh has a directory of its own for packages.
set(POSTBOX_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "Where completion functions of zsh are installed")
install(FILES ${completions}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME postbox COMPONENT tools)
install(FILES ${completions}/zsh DESTINATION ${POSTBOX_ZSH_DIR} RENAME _postbox COMPONENT tools)
install(FILES ${completions}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME postbox.fish COMPONENT tools)

# Rules, alerts, dashboards and manifests for Prometheus and what belongs to it.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/control/monitoring DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT tools)
