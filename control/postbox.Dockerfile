# Two images, from packages that control/package has made:
#   docker build -f control/postbox.Dockerfile --target server -t postbox-server DIRECTORY   # Postgres with Postbox preloaded
#   docker build -f control/postbox.Dockerfile --target puller -t postbox-puller DIRECTORY   # `postbox pull` and the emulator
# DIRECTORY is the one with the packages ($POSTBOX_BUILD_DIR/packages).
#
# SPDX-License-Identifier: PostgreSQL
# SPDX-FileCopyrightText: 2026 the Postbox authors
ARG DEBIAN=bookworm
FROM debian:${DEBIAN}-slim AS base
ENV DEBIAN_FRONTEND=noninteractive

FROM base AS server
ARG PG_VERSION=15
COPY *.deb /tmp/postbox/packages/
# No cluster is made here: the first start of a container makes it, in its volume.
RUN apt-get update \
 && apt-get install -y --no-install-recommends postgresql-common \
 && sed -ri 's/#?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && apt-get install -y --no-install-recommends /tmp/postbox/packages/postgresql-${PG_VERSION}-postbox_*.deb \
 && rm -rf /tmp/postbox/packages /var/lib/apt/lists/* \
 && install -d -o postgres -g postgres /var/lib/postgresql/data /var/run/postgresql
ENV PATH=/usr/lib/postgresql/${PG_VERSION}/bin:$PATH PGDATA=/var/lib/postgresql/data
USER postgres
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
# POSTGRES_PASSWORD is needed for the first start only.
CMD if [ ! -s "$PGDATA/PG_VERSION" ]; then \
      umask 077 && printf '%s\n' "${POSTGRES_PASSWORD:?}" >/tmp/password \
      && initdb --auth-host=scram-sha-256 --auth-local=peer --pwfile=/tmp/password && rm /tmp/password \
      && printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf" || exit 1; \
    fi; \
    exec postgres -c listen_addresses='*' -c shared_preload_libraries=postbox

FROM base AS puller
COPY *.deb /tmp/postbox/packages/
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates /tmp/postbox/packages/postbox_*.deb \
 && rm -rf /tmp/postbox/packages /var/lib/apt/lists/*
USER nobody
# PGHOST and the other variables of libpq say where the database is.
ENTRYPOINT ["postbox"]
CMD ["pull"]
