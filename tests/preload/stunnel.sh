# Two stunnels, one in client mode, between socat and a server. Answers fit into the buffers: see the book. LIBRARY is the preload library, or empty.
set -eu
command -v stunnel4 >/dev/null && command -v openssl >/dev/null && command -v socat >/dev/null || { echo "stunnel4, openssl or socat is not installed"; exit 77; }
folder=$(mktemp -d) server= near= far=
finish() { kill $near $far $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000)) second=$((20001 + $$ % 12000)) third=$((20002 + $$ % 12000))
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$folder/key" -out "$folder/cert" 2>/dev/null
head -c 40000 /dev/urandom >"$folder/sent"
printf 'foreground = yes\npid =\n[far]\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\ncert = %s/cert\nkey = %s/key\n' $second $port "$folder" "$folder" >"$folder/far"
printf 'foreground = yes\npid =\n[near]\nclient = yes\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\n' $third $second >"$folder/near"
start() { exec env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@" 2>>"$folder/log"; }
start socat -t 60 TCP-LISTEN:$port,bind=127.0.0.1,fork EXEC:cat & server=$!
start stunnel4 "$folder/far" & far=$!
start stunnel4 "$folder/near" & near=$!
for each in $port $second $third; do
    for i in $(seq 600); do socat -u OPEN:/dev/null TCP:127.0.0.1:$each 2>/dev/null && break; sleep 0.1; done
done
for i in 1 2 3; do
    env ${LIBRARY:+LD_PRELOAD=$LIBRARY} socat -t 60 - TCP:127.0.0.1:$third <"$folder/sent" >"$folder/received"
    cmp "$folder/sent" "$folder/received" || { tail "$folder/log"; exit 1; }
done
echo "3 answers equal through two tunnels"
