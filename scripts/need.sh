# To be sourced: need COMMAND PACKAGE..: is COMMAND there, or can it be installed? Reports an installation, and the reason of a failure.
need() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return 0
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "$1 is missing: installing ${*:2}"
    local said status=0
    said=$(export DEBIAN_FRONTEND=noninteractive
        { [ -n "${packages_are_known:-}" ] || apt-get update -qq; } &&
            apt-get install -y -qq --no-install-recommends "${@:2}" 2>&1) || status=$?
    packages_are_known=yes
    [ "$status" = 0 ] && PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return 0
    tail -n 3 <<<"$said"
    return 1
}
