# PostgreSQL and pgbench. LIBRARY is the preload library, or empty.
set -eu
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
[ -n "$programs" ] && [ -x "$programs/pgbench" ] && command -v setpriv >/dev/null || { echo "PostgreSQL is not installed"; exit 77; }
folder=$(mktemp -d) server=
finish() { kill -QUIT $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000))
# PostgreSQL refuses root. The client runs as the same user: others stay on TCP.
user=() ; [ "$(id -u)" != 0 ] || { user=(setpriv --reuid nobody --regid nogroup --clear-groups); chown nobody "$folder"; }
[ -z "$LIBRARY" ] || { cp "$LIBRARY" "$folder/preload.so"; chmod 755 "$folder/preload.so"; LIBRARY=$folder/preload.so; }
with() { ${user[@]+"${user[@]}"} env HOME="$folder" ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
start() { exec ${user[@]+"${user[@]}"} env HOME="$folder" ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
${user[@]+"${user[@]}"} "$programs/initdb" -D "$folder/data" -A trust -U postgres >/dev/null
start "$programs/postgres" -D "$folder/data" -p $port -h 127.0.0.1 -k "" -c fsync=off >"$folder/log" 2>&1 & server=$!
until "$programs/pg_isready" -q -h 127.0.0.1 -p $port; do sleep 0.1; done
bench() { with "$programs/pgbench" -h 127.0.0.1 -p $port -U postgres "$@" postgres 2>&1; }
bench -i -s 1 -q >/dev/null
bench -c 8 -j 2 -t 200 | grep -q 'actually processed: 1600/1600'
bench -n -c 8 -j 2 -t 500 -S -M prepared | grep -q 'actually processed: 4000/4000'
ask() { with "$programs/psql" -h 127.0.0.1 -p $port -U postgres -At -c "$1" postgres; }
[ "$(ask 'select sum(tbalance) from pgbench_tellers')" = "$(ask 'select sum(delta) from pgbench_history')" ]
[ "$(ask "select repeat('x', 3000000)" | wc -c)" = 3000001 ]
echo "balances equal after 1600 transactions"
