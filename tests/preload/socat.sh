# socat with FORK and EXEC, dynamic and static programs behind it. LIBRARY is the preload library, or empty.
set -eu
command -v socat >/dev/null || { echo "socat is not installed"; exit 77; }
folder=$(mktemp -d) server=
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000))
with() { env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
head -c 2000000 /dev/urandom >"$folder/sent"
# With pipes socat itself takes the end of its child only after -t.
serve() {
    case $1 in *,pipes) set -- "$1" 2 ;; *) set -- "$1" 60 ;; esac
    exec env ${LIBRARY:+LD_PRELOAD=$LIBRARY} socat -t "$2" TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork "$1"
}
for program in EXEC:cat EXEC:cat,pipes EXEC:cat,nofork SYSTEM:cat; do
    serve "$program" & server=$!
    until socat -u OPEN:/dev/null TCP:127.0.0.1:$port 2>/dev/null; do sleep 0.1; done
    for i in 1 2 3; do
        with socat -t 60 - TCP:127.0.0.1:$port <"$folder/sent" >"$folder/received"
        cmp "$folder/sent" "$folder/received"
    done
    kill $server; wait $server 2>/dev/null || true
    port=$((port + 1))
done
echo "12 answers equal through 4 kinds of children"
