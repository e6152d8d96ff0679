# Instructions that the library adds to programs that stay on TCP, counted by valgrind. LIBRARY is the preload library, or empty.
set -eu
[ -n "$LIBRARY" ] || { echo "counted in the other run"; exit 0; }
for program in cc valgrind redis-server; do command -v $program >/dev/null || { echo "$program is not installed"; exit 77; }; done
folder=$(mktemp -d) server= rounds=10000 port=$((20000 + $$ % 12000))
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
# First: exact counts of one wait, read and write.
cc -O1 -o "$folder/program" tests/preload/instructions.c
echo "use tcp listen * *:1-65535" >"$folder/rules"
count() {
    env ${1:+LD_PRELOAD=$1} DDSS_STREAMS_RULES="$folder/rules" valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
        --log-file="$folder/log" "$folder/program" "$2"
    awk '/I +refs/ { gsub(",", ""); print $NF }' "$folder/log"
}
# The difference of two counts leaves out the start of the program.
per() { echo $((($(count "$1" $rounds) - $(count "$1" 100)) / (2 * (rounds - 100)))); }
added=$(($(per "$LIBRARY") - $(per "")))
[ $added -le 110 ] || { echo "$added instructions more for a wait, a read and a write"; exit 1; }
# Second: the part of the library in a server with 50 connections of clients without it.
LD_PRELOAD=$LIBRARY valgrind --tool=callgrind --callgrind-out-file="$folder/out" redis-server --port $port --bind 127.0.0.1 \
    --dir "$folder" --save "" >/dev/null 2>&1 & server=$!
until redis-cli -p $port ping >/dev/null 2>&1; do sleep 0.1; done
redis-benchmark -p $port -c 50 -n 20000 -t set,get -q >/dev/null
redis-cli -p $port shutdown nosave >/dev/null 2>&1 || true
wait $server || true
server=
# A cost line counts for the object named last; the line after calls= repeats the cost of a callee.
awk -v limit=100 -v added="$added" '
    /^c?ob=/ { split($0, part, /[()]/); if (part[3] != "") name[part[2]] = part[3]; if (/^ob=/) object = name[part[2]]; next }
    /^calls=/ { is_call = 1; next }
    /^[0-9+*-]/ { if (!is_call) { if (object ~ /ddss_preload/) own += $NF; else rest += $NF } is_call = 0 }
    END {
        share = own * 10000 / rest
        printf "%d instructions more for a wait, a read and a write; %.2f %% more in redis-server with 50 connections\n", added, share / 100
        exit !(own > 0 && share <= limit)
    }' "$folder/out"
