# Redis Cluster: three masters, and slots that move while a client writes. LIBRARY is the preload library, or empty.
. tests/preload/common
needs redis-server redis-cli
ports=($port $second $third)
for each in "${ports[@]}"; do
    mkdir "$folder/$each"
    # The bus of the cluster has no port of its own beside the others by default: 10,000 more may be too many.
    start redis-server --port $each --cluster-port $((each + 10)) --bind 127.0.0.1 --dir "$folder/$each" --save "" --cluster-enabled yes >/dev/null
done
for each in "${ports[@]}"; do soon listens $each; done
ask() { with redis-cli -c -p "$@"; }
with redis-cli --cluster create "${ports[@]/#/127.0.0.1:}" --cluster-yes >"$folder/log"
is_formed() { for each in "${ports[@]}"; do ask $each cluster info | grep -q cluster_state:ok || return 1; done; }
soon is_formed
watch
keys=4000
for i in $(seq $keys); do echo "set key:$i $(printf '%0*d' $((i % 300)) "$i")"; done | ask $port >"$folder/said" & writer=$!
masters=($(for each in "${ports[@]}"; do ask $each cluster myid; done))
for turn in 0 1 2 0; do
    with redis-cli --cluster reshard 127.0.0.1:$port --cluster-from ${masters[turn]} --cluster-to ${masters[(turn + 1) % 3]} \
        --cluster-slots 150 --cluster-pipeline 10 --cluster-yes >>"$folder/log" || { tail "$folder/log"; exit 1; }
done
wait $writer
[ "$(grep -c '^OK' "$folder/said")" = $keys ]
with redis-cli --cluster check 127.0.0.1:$port | grep -q 'All 16384 slots covered'
for i in $(seq $keys); do echo "get key:$i"; done | ask $second | grep -v '^->' >"$folder/found"
for i in $(seq $keys); do printf '%0*d\n' $((i % 300)) "$i"; done | cmp - "$folder/found"
shared redis-server
echo "$keys values equal after 600 slots moved"
