# The socket and epoll stressors of stress-ng, which check what they read. LIBRARY is the preload library, or empty.
set -eu
command -v stress-ng >/dev/null || { echo "stress-ng is not installed"; exit 77; }
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} stress-ng --sock 2 --sock-ops 2000 --epoll 2 --epoll-ops 2000 --sockmany 1 --sockmany-ops 2000 --verify --timeout 120
echo "no stressor failed"
