# For those who expect `make && make install` of an extension: PGXN, packagers. CMake does the work; README.md has the whole of it.
#
# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
PG_CONFIG ?= pg_config
BUILD_DIR ?= build
DESTDIR ?=

all: $(BUILD_DIR)/build.ninja
	ninja -C $(BUILD_DIR)

$(BUILD_DIR)/build.ninja:
	cmake -G Ninja -S . -B $(BUILD_DIR) -DPG_CONFIG=$$(command -v $(PG_CONFIG)) -DPOSTBOX_TESTS=OFF

install: all
	DESTDIR=$(DESTDIR) cmake --install $(BUILD_DIR)

uninstall:
	xargs -r rm -f < $(BUILD_DIR)/install_manifest.txt

clean:
	rm -rf $(BUILD_DIR)

.PHONY: all install uninstall clean
