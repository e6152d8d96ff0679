# Redis with redis-cli, redis-benchmark, replication and BGSAVE. LIBRARY is the preload library, or empty.
set -eu
command -v redis-server >/dev/null || { echo "redis-server is not installed"; exit 77; }
folder=$(mktemp -d)
server= replica=
finish() { kill $server $replica 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
# In the background the program replaces the shell, so that its number is the program's.
start() { exec env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
with() { env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@"; }
port=$((20000 + $$ % 12000)) second=$((20001 + $$ % 12000))
mkdir "$folder/1" "$folder/2"
start redis-server --port $port --bind 127.0.0.1 --dir "$folder/1" --save "" >/dev/null & server=$!
start redis-server --port $second --bind 127.0.0.1 --dir "$folder/2" --save "" --replicaof 127.0.0.1 $port >/dev/null & replica=$!
ask() { with redis-cli -p "$@"; }
until [ "$(ask $port ping 2>/dev/null)" = PONG ] && [ "$(ask $second ping 2>/dev/null)" = PONG ]; do sleep 0.1; done
until ask $second info replication | grep -q master_link_status:up; do sleep 0.1; done
for i in $(seq 200); do echo "set key:$i $(printf '%0*d' $((i * 37)) "$i")"; done | ask $port | sort | uniq -c | grep -q '200 OK'
ask $port bgsave | grep -q started
with redis-benchmark -p $port -t set,get,lpush,lrange_100,mset -n 10000 -q >/dev/null
with redis-benchmark -p $port -t set,get -n 20000 -P 16 -d 16384 -q >/dev/null
until ask $port info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.1; done
ask $port info persistence | grep -q rdb_last_bgsave_status:ok
[ "$(ask $port wait 1 5000)" = 1 ]
for i in 1 77 200; do [ "$(ask $second get key:$i)" = "$(printf '%0*d' $((i * 37)) "$i")" ]; done
[ "$(ask $port dbsize)" = "$(ask $second dbsize)" ]
echo "replica equal, bgsave ok"
