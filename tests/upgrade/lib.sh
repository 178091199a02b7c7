# shellcheck shell=bash
# Copies of the tree in which releases are cut. To be sourced, with the root of the tree in $root.
for variable in "${!GIT_@}"; do unset "$variable"; done
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
# shellcheck disable=SC2034,SC2154  # for the script that sources this; which has set the root
version=$("$root/control/version")

# copy DIRECTORY: a repository there with what makes, checks and releases scripts, where nothing is released; and goes there.
copy() {
  rm -rf "$1"
  mkdir -p "$1/control" "$1/debian"
  cp -r "$root/sql" "$root/CMakeLists.txt" "$root/META.json" "$1"
  cp "$root/debian/changelog" "$1/debian"
  cp "$root"/control/{check-upgrade,install-script,released-script,upgrade-script,version,postbox.spec,release} "$1/control"
  cd "$1" || exit 1
  sed -i '/^[^#]/d' sql/upgrade/releases
  find sql/upgrade -name '*--*.sql' -delete
  git -c init.defaultBranch=main init -q
}
commit() {
  git add -A
  git -c user.name=postbox -c user.email=postbox -c commit.gpgsign=false commit -q -m "$1"
}
set_version() {
  sed -i -E "s/^(project\(postbox VERSION )[0-9.]+/\1$1/" CMakeLists.txt
  sed -i -E "1s/\(.*\)/($1)/" debian/changelog
  sed -i -E "s/^(   \"version\": \")[^\"]*/\1$1/" META.json
  sed -i -E "s/^(Version: *).*/\1$1/" control/postbox.spec
}
