# CPython's own tests of sockets. LIBRARY is the preload library, or empty.
set -eu
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))') || { echo "python3 is not installed"; exit 77; }
"$python" -c 'import test.test_socket' 2>/dev/null || { echo "CPython's tests are not installed"; exit 77; }
tests="test_socket test_socketserver test_selectors test_epoll test_asyncio test_ssl"
[ -z "${QUICK:-}" ] || tests="test_socketserver test_selectors test_epoll"
# The kernel of a small machine has no VSOCK loopback, with or without the library.
# shellcheck disable=SC2086
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$python" -m test -u network -i '*VSOCK*' $tests
