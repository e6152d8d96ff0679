# nginx with two workers and sendfile, and curl. LIBRARY is the preload library, or empty.
set -eu
command -v nginx >/dev/null && command -v curl >/dev/null || { echo "nginx or curl is not installed"; exit 77; }
folder=$(mktemp -d) server=
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000))
chmod 755 "$folder"
head -c 3000000 /dev/urandom >"$folder/large"; head -c 300 /dev/urandom >"$folder/small"
cat >"$folder/nginx.conf" <<EOF
daemon off; worker_processes 2; pid $folder/pid; error_log $folder/error.log; user root;
events { worker_connections 256; }
http { access_log off; sendfile on; keepalive_requests 10000;
  client_body_temp_path $folder/b; proxy_temp_path $folder/p; fastcgi_temp_path $folder/f; uwsgi_temp_path $folder/u; scgi_temp_path $folder/s;
  server { listen 127.0.0.1:$port; root $folder; } }
EOF
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} nginx -c "$folder/nginx.conf" & server=$!
until curl -s -o /dev/null "http://127.0.0.1:$port/small"; do sleep 0.1; done
list=()
for i in $(seq 20); do list+=(-o "$folder/$i" "http://127.0.0.1:$port/small" -o "$folder/l$i" "http://127.0.0.1:$port/large"); done
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} curl -s --fail "${list[@]}"
for i in $(seq 20); do cmp "$folder/$i" "$folder/small"; cmp "$folder/l$i" "$folder/large"; done
echo "40 files equal on one connection"
