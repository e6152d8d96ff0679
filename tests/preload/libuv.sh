# libuv's own tests, built by `scripts/preload sources`. LIBRARY is the preload library, or empty.
set -eu
folder=$SOURCES/libuv
[ -x "$folder/build/uv_run_tests" ] || { echo "libuv's tests are not built: scripts/preload sources"; exit 77; }
cd "$folder"
# Some tests of files and routes fail on some machines: those that fail without the library may fail with it.
env UV_RUN_AS_ROOT=1 UV_TEST_TIMEOUT_MULTIPLIER=10 ${LIBRARY:+LD_PRELOAD=$LIBRARY} build/uv_run_tests >log 2>&1 || true
passed=$(grep -c '^ok ' log) || { tail log; exit 1; }
sed -n 's/^not ok [0-9]* - //p' log | sort >"failed${LIBRARY:+.preload}"
if [ -n "$LIBRARY" ]; then
    # The first connects to an address outside of the machine, and fails without the library too where that is refused at once.
    new=$(comm -13 failed failed.preload | grep -vx tcp_close_while_connecting || true)
    [ -z "$new" ] || { echo "fail only with the library:" $new; grep '^#' log | tail -60; exit 1; }
fi
echo "$passed tests passed"
