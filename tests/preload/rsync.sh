# An rsync daemon and a client, with and without the delta transfer. LIBRARY is the preload library, or empty.
set -eu
command -v rsync >/dev/null || { echo "rsync is not installed"; exit 77; }
folder=$(mktemp -d) server=
finish() { kill $server 2>/dev/null || true; wait; rm -rf "$folder"; }
trap finish EXIT
port=$((20000 + $$ % 12000))
mkdir "$folder/from"
for i in $(seq 40); do head -c $((i * i * 997)) /dev/urandom >"$folder/from/$i"; done
printf 'use chroot = no\npid file = %s/pid\nuid = %s\ngid = %s\n[files]\npath = %s/from\n' "$folder" "$(id -u)" "$(id -g)" "$folder" >"$folder/conf"
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} rsync --daemon --no-detach --address=127.0.0.1 --port=$port --config="$folder/conf" & server=$!
until rsync "rsync://127.0.0.1:$port/" >/dev/null 2>&1; do sleep 0.1; done
with() { env ${LIBRARY:+LD_PRELOAD=$LIBRARY} rsync -a "$@"; }
with "rsync://127.0.0.1:$port/files/" "$folder/to/"
diff -r "$folder/from" "$folder/to"
for i in $(seq 40); do printf 'changed' | dd of="$folder/from/$i" bs=1 seek=$((i * 400)) conv=notrunc status=none; done
with --no-whole-file --checksum "rsync://127.0.0.1:$port/files/" "$folder/to/"
diff -r "$folder/from" "$folder/to"
echo "40 files equal, twice"
