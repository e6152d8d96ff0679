# node.js: http with keep-alive and ws, while both ends write files. LIBRARY is the preload library, or empty.
set -eu
command -v node >/dev/null || { echo "node is not installed"; exit 77; }
ws=${SOURCES:-}/node_modules/ws
[ -e "$ws" ] || { echo "ws is missing: scripts/preload sources"; exit 77; }
folder=$(mktemp -d) server= rounds=100
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
start() { exec env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
(start ROLE=server node tests/preload/node.js "$folder" $rounds "$ws") & server=$!
until [ -s "$folder/port" ]; do sleep 0.1; kill -0 $server; done
(start node tests/preload/node.js "$folder" $rounds "$ws") >"$folder/said" & client=$!
if [ -n "$LIBRARY" ]; then
    # The maps of the server show whether it shared memory at all.
    until grep -q 'memfd:ddss-stream ' /proc/$server/maps 2>/dev/null; do sleep 0.05; kill -0 $client; done
fi
wait $client
cat "$folder/said"
