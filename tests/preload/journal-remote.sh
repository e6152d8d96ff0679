# systemd-journal-remote, which polls a descriptor of epoll, with curl and systemd-journal-upload. LIBRARY is the preload library, or empty.
. tests/preload/common
PATH=$PATH:/usr/lib/systemd
needs systemd-journal-remote systemd-journal-upload journalctl curl
mkdir "$folder/1" "$folder/2"
start systemd-journal-remote --listen-http=127.0.0.1:$port --output="$folder/1/remote.journal" --split-mode=none 2>>"$folder/log"
start systemd-journal-remote --listen-http=127.0.0.1:$second --output="$folder/2/remote.journal" --split-mode=none 2>>"$folder/log"
soon listens $port
soon listens $second
awk 'BEGIN { for (i = 1; i <= 4000; i++) {
    printf "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=0123456789abcdef0123456789abcdef\n", 1e15 + i, i
    printf "MESSAGE=entry %d ", i; for (j = 0; j < i % 200; j++) printf "%d ", i * j; printf "\n\n" } }' >"$folder/entries"
messages() { journalctl -D "$1" -o cat; }
sed -n 's/^MESSAGE=//p' "$folder/entries" >"$folder/expected"
watch
with curl -sS --fail -H 'Content-Type: application/vnd.fdo.journal' --data-binary @"$folder/entries" --limit-rate 2M "http://127.0.0.1:$port/upload"
messages "$folder/1" | cmp - "$folder/expected"
with systemd-journal-upload --follow=no -D "$folder/1" -u http://127.0.0.1:$second --save-state="$folder/state" 2>>"$folder/log" || { cat "$folder/log"; exit 1; }
messages "$folder/2" | cmp - "$folder/expected"
shared curl systemd-journal
echo "4000 entries equal behind two journals"
