# iperf3 in both directions and with four streams; bytes received equal bytes sent. LIBRARY is the preload library, or empty.
set -eu
command -v iperf3 >/dev/null || { echo "iperf3 is not installed"; exit 77; }
port=$((20000 + $$ % 12000)) server=
finish() { kill $server 2>/dev/null || true; wait; }
trap finish EXIT
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} iperf3 -s -B 127.0.0.1 -p $port >/dev/null & server=$!
with() { env ${LIBRARY:+LD_PRELOAD=$LIBRARY} iperf3 -c 127.0.0.1 -p $port -J "$@"; }
for i in $(seq 600); do with -n 1M >/dev/null 2>&1 && break; sleep 0.1; done
for options in "-n 400M" "-n 400M -R" "-n 400M -P 4" "-n 40M -l 200"; do
    # shellcheck disable=SC2086
    with $options | python3 -c 'import json, sys
end = json.load(sys.stdin)["end"]
sys.exit(not end["sum_received"]["bytes"] > 39_000_000)'
done
echo "4 transfers complete"
