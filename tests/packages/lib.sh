# Shared by the tests of tests/packages, which control/test-packages runs as root in a clean root with no network but loopback.
# The packages are in /tmp/postbox/packages; what they depend on is in apt's own cache.
# shellcheck shell=bash
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
version=${POSTBOX_TEST_PG_VERSION:?}
emulator_port=8085

die() {
  printf 'not ok - %s\n' "$*"
  tail -n 20 /tmp/*.log "/var/log/postgresql/postgresql-$version-main.log" 2>/dev/null || true
  exit 1
}
said() { printf 'ok - %s\n' "$*"; }
is() { # SENTENCE FOUND EXPECTED
  [ "$2" = "$3" ] || die "$1: '$2' instead of '$3'"
  said "$1"
}

sql() { # DATABASE STATEMENTS
  runuser -u postgres -- psql -qXAt -v ON_ERROR_STOP=1 -d "$1" -c "$2"
}

wait_until() { # SECONDS SENTENCE COMMAND...
  local limit=$((SECONDS + $1)) sentence=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $limit ] || die "$sentence: not after a long time"
    sleep 0.1
  done
  said "$sentence"
}
sql_is() { [ "$(sql "$1" "$2" 2>/dev/null)" = "$3" ]; } # DATABASE QUERY VALUE

install_packages() { # FILE...
  apt-get install -y --no-install-recommends "$@" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; die "apt cannot install $*"; }
}

start_emulator() {
  runuser -u nobody -- postbox emulator --port $emulator_port --project dev --deliver-twice --topic catalog.video.events \
    --subscription catalog.video.events.catalog-reader=catalog.video.events,ordered >/tmp/emulator.log 2>&1 &
  wait_until 10 'the emulator listens' grep -q listening /tmp/emulator.log
}

# What systemd does with the unit: the environment of the file, the credentials as files, the command line.
start_service() { # NAME
  local unit command options
  unit=$(dpkg -L postbox | grep '/postbox-pull@.service$')
  command=$(sed -nE 's/^ExecStart=//p' "$unit")
  mkdir -p /tmp/credentials
  [ ! -e "/etc/postbox/$1.password" ] || install -o nobody -m 400 "/etc/postbox/$1.password" /tmp/credentials/password
  options=$(sed -nE 's/^POSTBOX_OPTIONS=//p' "/etc/postbox/$1.conf")
  # shellcheck disable=SC2016,SC2046,SC2086 # words of a command line
  env -i $(grep -vE '^(#|$|POSTBOX_OPTIONS=)' "/etc/postbox/$1.conf") CREDENTIALS_DIRECTORY=/tmp/credentials PATH="$PATH" \
    setpriv --reuid nobody --regid nogroup --clear-groups ${command/'$POSTBOX_OPTIONS'/$options} >/tmp/pull.log 2>&1 &
  pull=$!
}

stop_service() {
  kill "$pull"
  wait "$pull" || die "the puller left with status $?"
}

configure_server() {
  cat >>"/etc/postgresql/$version/main/conf.d/postbox.conf" <<EOF
shared_preload_libraries = 'postbox'
postbox.project_id = 'dev'
postbox.endpoint = 'http://127.0.0.1:$emulator_port'
EOF
  pg_ctlcluster "$version" main restart
}

configure_reader() {
  sql postgres "CREATE ROLE reader LOGIN PASSWORD 'a secret'"
  sql reader 'GRANT INSERT ON catalog_read.inbox TO reader'
  cat >/etc/postbox/reader.conf <<EOF
PGHOST=127.0.0.1
PGDATABASE=reader
PGUSER=reader
PUBSUB_EMULATOR_HOST=127.0.0.1:$emulator_port
POSTBOX_OPTIONS=--project dev
EOF
  (umask 077 && printf 'a secret\n' >/etc/postbox/reader.password)
}

# As README.md has it.
writing_side() {
  sql postgres 'CREATE DATABASE catalog'
  sql catalog "
    CREATE EXTENSION postbox;
    CREATE SCHEMA catalog;
    CREATE TABLE catalog.video (video_id text PRIMARY KEY, title text NOT NULL);
    SELECT postbox.create_outbox('catalog.outbox');
    SELECT postbox.create_publication('video_events', 'catalog.outbox', 'catalog.video.events');" >/dev/null
}
reading_side() {
  sql postgres 'CREATE DATABASE reader'
  sql reader "
    CREATE EXTENSION postbox;
    CREATE SCHEMA catalog_read;
    CREATE TABLE catalog_read.video_projection (video_id text PRIMARY KEY, title text, version bigint NOT NULL);
    SELECT postbox.create_inbox('catalog_read.inbox');
    SELECT postbox.create_subscription('videos', 'catalog_read.inbox', 'catalog.video.events.catalog-reader');
    SELECT postbox.create_projection('catalog_read.inbox', ARRAY['video.created', 'video.updated', 'video.deleted'],
                                     'catalog_read.video_projection', delete_types => ARRAY['video.deleted']);" >/dev/null
}
emit() { # VIDEO TYPE TITLE
  sql catalog "SELECT version FROM postbox.outbox_emit('video', '$1', '$2', '{\"video_id\": \"$1\", \"title\": \"$3\"}')" >/dev/null
}
