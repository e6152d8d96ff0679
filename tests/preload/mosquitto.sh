# mosquitto: each quality of service, retained and large messages, persistent sessions. LIBRARY is the preload library, or empty.
. tests/preload/common
PATH=$PATH:/usr/sbin
needs mosquitto mosquitto_pub mosquitto_sub
printf 'listener %s 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 0\nlog_type error\n' $port >"$folder/conf"
start mosquitto -c "$folder/conf" 2>"$folder/log"
soon listens $port
ask() { with "$@" -h 127.0.0.1 -p $port; }
watch
ask mosquitto_sub -q 2 -c -i keeper -t 'topic/#' -E
for qos in 0 1 2; do
    ask mosquitto_sub -q $qos -t "topic/$qos" -C 1001 -W 100 >"$folder/received" & receiver=$!
    # A retained message shows that the subscription is there.
    ask mosquitto_pub -q $qos -r -t "topic/$qos" -m first
    soon test -s "$folder/received"
    seq 1000 | ask mosquitto_pub -q $qos -l -t "topic/$qos"
    wait $receiver
    { echo first; seq 1000; } | cmp - "$folder/received"
done
ask mosquitto_sub -q 2 -c -i keeper -t 'topic/#' -R -C 2002 -W 100 >"$folder/kept"
for qos in 1 2; do echo first; seq 1000; done | sort | cmp - <(sort "$folder/kept")
head -c 3000000 /dev/urandom >"$folder/large"
ask mosquitto_pub -q 2 -r -t large -f "$folder/large"
for i in 1 2 3; do ask mosquitto_sub -q 2 -t large -C 1 -N -W 100 | cmp - "$folder/large"; done
shared mosquitto
echo "5005 messages equal by three qualities of service"
