# Shared by the scripts of control/: where things are, and running something as the unprivileged
# user that Postgres asks for. Sourced, not run.
# shellcheck shell=bash

POSTBOX_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# The build directory stands outside the tree, one per clone, in a place that user postgres can read.
POSTBOX_BUILD_DIR=${POSTBOX_BUILD_DIR:-/var/tmp/postbox-build-$(printf '%s' "$POSTBOX_ROOT" | sha256sum | cut -c1-12)}
export POSTBOX_ROOT POSTBOX_BUILD_DIR
POSTBOX_STAGE=$POSTBOX_BUILD_DIR/stage
POSTBOX_NODE_MODULES=$POSTBOX_BUILD_DIR/node/node_modules
POSTBOX_PAGE_MODULES=$POSTBOX_BUILD_DIR/page/node_modules
export POSTBOX_STAGE POSTBOX_NODE_MODULES POSTBOX_PAGE_MODULES

# The programs of the server in the stage, and what it has for tests of extensions.
stage_bin() { printf '%s\n' "$POSTBOX_STAGE/bin"; }
stage_tests() { printf '%s\n' "$POSTBOX_STAGE/lib/pgxs/src/test"; }
stage_postbox() { printf '%s\n' "$POSTBOX_STAGE/usr/local/bin/postbox"; }

# as_postgres COMMAND...: Postgres refuses to run as root, so root becomes user postgres.
as_postgres() {
  if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

# scratch_directory: a new directory that user postgres owns; its path is short, since a Unix socket's
# may not be longer than 107 bytes.
scratch_directory() {
  local directory
  directory=$(mktemp -d "${POSTBOX_TMPDIR:-/tmp}/postbox.XXXXXX")
  [ "$(id -u)" != 0 ] || chown postgres "$directory"
  chmod 755 "$directory"
  printf '%s\n' "$directory"
}

# cluster_template USER: a data directory as initdb makes it, whose superuser is USER. To copy it takes a tenth of the time of
# initdb. All copies have the same system identifier.
cluster_template() {
  local template=$POSTBOX_BUILD_DIR/cluster-of-$1 new
  (
    flock 9
    if [ ! "$template" -nt "$(stage_bin)/postgres" ]; then
      new=$(mktemp -d "$POSTBOX_BUILD_DIR/cluster.XXXXXX")
      [ "$(id -u)" != 0 ] || chown postgres "$new"
      as_postgres "$(stage_bin)/initdb" -D "$new/data" -U "$1" -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$new/log" 2>&1 ||
        { cat "$new/log" >&2; rm -rf "$new"; die "initdb failed"; }
      rm -rf "$template"
      mv -T "$new/data" "$template"
      rm -rf "$new"
    fi
  ) 9>"$POSTBOX_BUILD_DIR/cluster.lock"
  printf '%s\n' "$template"
}

free_port() {
  perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) and bind(S, pack_sockaddr_in(0, INADDR_LOOPBACK)) or die $!;
    printf "%d\n", unpack_sockaddr_in(getsockname(S))'
}

# with_own_mounts COMMAND...: becomes COMMAND, which may mount file systems if POSTBOX_OWN_MOUNTS=1. No other
# process sees them, and they vanish with the last process.
with_own_mounts() {
  if [ "$(id -u)" = 0 ] && unshare --mount --propagation private true 2>/dev/null; then
    export POSTBOX_OWN_MOUNTS=1
    exec unshare --mount --propagation private "$@"
  fi
  exec "$@"
}

# What psql of tests/regress is started with: a result has no frame, whose width would change with each value, and no count of
# rows, which are all there. What is less than a warning is not shown, nor where an error was raised.
REGRESS_PSQL=(--no-align --pset=footer=off --set=SHOW_CONTEXT=never)
REGRESS_PGOPTIONS='-c client_min_messages=warning'

# copy_sources DIRECTORY: the tree as a release has it, without git and what .gitignore names, but with the libraries of the console's
# page: what is built from it needs no npm.
copy_sources() {
  local page=worker/cli/console/page modules
  modules=$("$POSTBOX_ROOT/control/node-modules" page)
  mkdir -p "$1"
  tar -C "$POSTBOX_ROOT" --exclude=./.git --exclude='./build*' --exclude=node_modules --exclude=__pycache__ -cf - . | tar -C "$1" -xf -
  cp -r "$modules" "$1/$page/node_modules"
}

# run_sql_tests KIND RUNNER FOLDER SUFFIX [NAME...]: runs tests/KIND with a runner of pg_regress's family in a
# private cluster. No publishers run there: these tests are about SQL, and rows stay as sessions left them.
# The extension is there already, and what tests/support builds can be loaded by its name.
# POSTBOX_ACCEPT=1 stores what came out as what is expected, to be read before it is committed.
run_sql_tests() {
  local kind=$1 runner=$2 folder=$3 suffix=$4 bin work names status=0 file options=()
  shift 4
  bin=$(stage_bin)
  runner=$(stage_tests)/$runner
  [ -x "$runner" ] || die "the server of $POSTBOX_STAGE was installed without $runner"
  work=$(scratch_directory)
  # shellcheck disable=SC2064 # the directory of now
  trap "'$POSTBOX_ROOT/control/cluster' stop '$work/cluster' immediate || true; rm -rf '$work'" EXIT
  cp -r "$POSTBOX_ROOT/tests/$kind" "$work/$kind"
  mkdir -p "$work/$kind/expected"
  [ "$(id -u)" != 0 ] || chown -R postgres "$work/$kind"
  "$POSTBOX_ROOT/control/cluster" start "$work/cluster" postbox.publishers=0 jit=off autovacuum=off \
    dynamic_library_path="\$libdir:$POSTBOX_BUILD_DIR/tests"

  names=("$@")
  if [ $# = 0 ]; then
    for file in "$work/$kind/$folder"/*"$suffix"; do names+=("$(basename "$file" "$suffix")"); done
  fi
  cd "$work/$kind" || return
  if [ "$kind" = regress ]; then
    export PGOPTIONS=$REGRESS_PGOPTIONS
    options=(--launcher="sh -c 'exec \"\$@\" ${REGRESS_PSQL[*]}' psql")
  fi
  # A test that has no result yet runs against an empty one.
  for file in "${names[@]}"; do as_postgres touch "expected/$file.out"; done
  as_postgres env TZ=UTC PGTZ=UTC LC_ALL=C.UTF-8 "$runner" --bindir="$bin" \
    --inputdir="$work/$kind" --outputdir="$work/$kind" --host=127.0.0.1 --port="$(cat "$work/cluster/port")" \
    --user=postgres --dbname="$kind"_postbox --load-extension=postbox "${options[@]}" "${names[@]}" || status=$?
  if [ -n "${POSTBOX_ACCEPT:-}" ]; then
    for file in "${names[@]}"; do cp "results/$file.out" "$POSTBOX_ROOT/tests/$kind/expected/$file.out"; done
  elif [ $status -ne 0 ]; then
    cat regression.diffs 2>/dev/null || true
    tail -n 50 "$work/cluster/server.log"
  fi
  return $status
}

# run_quietly LOG STATUS COMMAND...: runs COMMAND with its output in the file LOG. Every 5 seconds it says
# what `STATUS LOG` prints and how long it has taken. If COMMAND fails, it prints the end of LOG.
run_quietly() {
  local log=$1 status=$2 begun=$SECONDS said=$SECONDS pid result=0
  shift 2
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  # shellcheck disable=SC2064 # the process of now
  trap "kill $pid 2>/dev/null || true; wait $pid || true; exit 130" INT TERM HUP
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS - said >= 5)); then
      said=$SECONDS
      say "$("$status" "$log"), $((SECONDS - begun)) s"
    fi
    sleep 0.1
  done
  wait "$pid" || result=$?
  trap - INT TERM HUP
  [ $result -eq 0 ] || tail -n 100 "$log" >&2
  return $result
}

say() { printf '== %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
