# tokio's own tests of sockets, built by `scripts/preload sources`. LIBRARY is the preload library, or empty.
set -eu
folder=$SOURCES/tokio
[ -e "$folder/programs" ] || { echo "tokio's tests are not built: scripts/preload sources"; exit 77; }
count=0
while read -r program; do
    # The tests read files of their package.
    (cd "$folder" && env ${LIBRARY:+LD_PRELOAD=$LIBRARY} timeout 300 "$program")
    count=$((count + 1))
done <"$folder/programs"
echo "$count test programs passed"
