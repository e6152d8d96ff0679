# haproxy between curl and nginx. LIBRARY is the preload library, or empty.
set -eu
command -v haproxy >/dev/null && command -v nginx >/dev/null && command -v curl >/dev/null || { echo "haproxy, nginx or curl is not installed"; exit 77; }
folder=$(mktemp -d) server= proxy=
finish() { kill $proxy $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000)) second=$((20001 + $$ % 12000))
chmod 755 "$folder"
head -c 3000000 /dev/urandom >"$folder/large"; head -c 300 /dev/urandom >"$folder/small"
cat >"$folder/nginx.conf" <<EOF
daemon off; worker_processes 1; pid $folder/pid; error_log $folder/error.log; user root;
events { worker_connections 256; }
http { access_log off; keepalive_requests 10000;
  client_body_temp_path $folder/b; proxy_temp_path $folder/p; fastcgi_temp_path $folder/f; uwsgi_temp_path $folder/u; scgi_temp_path $folder/s;
  server { listen 127.0.0.1:$port; root $folder; } }
EOF
cat >"$folder/haproxy.cfg" <<EOF
global
    nbthread 2
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
listen all
    bind 127.0.0.1:$second
    server one 127.0.0.1:$port
EOF
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} nginx -c "$folder/nginx.conf" & server=$!
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} haproxy -db -f "$folder/haproxy.cfg" & proxy=$!
until curl -s -f -o /dev/null "http://127.0.0.1:$second/small"; do sleep 0.1; done
list=()
for i in $(seq 20); do list+=(-o "$folder/$i" "http://127.0.0.1:$second/small" -o "$folder/l$i" "http://127.0.0.1:$second/large"); done
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} curl -s --fail "${list[@]}"
for i in $(seq 20); do cmp "$folder/$i" "$folder/small"; cmp "$folder/l$i" "$folder/large"; done
echo "40 files equal through the proxy"
