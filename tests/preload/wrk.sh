# nginx under wrk with 64 connections: no failed request. LIBRARY is the preload library, or empty.
set -eu
command -v nginx >/dev/null && command -v wrk >/dev/null || { echo "nginx or wrk is not installed"; exit 77; }
folder=$(mktemp -d) server=
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000))
chmod 755 "$folder"
head -c 200000 /dev/urandom >"$folder/large"; head -c 300 /dev/urandom >"$folder/small"
cat >"$folder/nginx.conf" <<EOF
daemon off; worker_processes 2; pid $folder/pid; error_log $folder/error.log; user root;
events { worker_connections 512; }
http { access_log off; sendfile on; keepalive_requests 1000000;
  client_body_temp_path $folder/b; proxy_temp_path $folder/p; fastcgi_temp_path $folder/f; uwsgi_temp_path $folder/u; scgi_temp_path $folder/s;
  server { listen 127.0.0.1:$port; root $folder; } }
EOF
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} nginx -c "$folder/nginx.conf" & server=$!
until curl -s -o /dev/null "http://127.0.0.1:$port/small"; do sleep 0.1; done
for file in small large; do
    env ${LIBRARY:+LD_PRELOAD=$LIBRARY} wrk -t 2 -c 64 -d 3 --timeout 60 "http://127.0.0.1:$port/$file" >"$folder/out"
    ! grep -E 'Socket errors|Non-2xx' "$folder/out"
    grep -q 'requests in' "$folder/out"
done
echo "no failed request"
