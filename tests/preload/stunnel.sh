# stunnel between openssl's client and a server behind it. LIBRARY is the preload library, or empty.
set -eu
command -v stunnel4 >/dev/null && command -v openssl >/dev/null && command -v socat >/dev/null || { echo "stunnel4, openssl or socat is not installed"; exit 77; }
folder=$(mktemp -d) server= tunnel=
finish() { kill $tunnel $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 20000)) second=$((20001 + $$ % 20000))
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$folder/key" -out "$folder/cert" 2>/dev/null
head -c 1000000 /dev/urandom | base64 >"$folder/sent"
printf 'foreground = yes\npid =\n[tls]\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\ncert = %s/cert\nkey = %s/key\n' $second $port "$folder" "$folder" >"$folder/conf"
start() { exec env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$@" 2>>"$folder/log"; }
start socat TCP-LISTEN:$port,bind=127.0.0.1,fork EXEC:cat & server=$!
start stunnel4 "$folder/conf" & tunnel=$!
until socat -u OPEN:/dev/null TCP:127.0.0.1:$second 2>/dev/null; do sleep 0.1; done
for i in 1 2 3; do
    # The client ends at the end of its input, so that the input waits for the answer.
    { cat "$folder/sent"; until [ "$(stat -c %s "$folder/received")" -ge "$(stat -c %s "$folder/sent")" ]; do sleep 0.1; done; } |
        env ${LIBRARY:+LD_PRELOAD=$LIBRARY} openssl s_client -quiet -no_ign_eof -connect 127.0.0.1:$second 2>/dev/null >"$folder/received" || true
    cmp "$folder/sent" "$folder/received"
    : >"$folder/received"
done
echo "3 answers equal through the tunnel"
