# A program with a copy of liburing inside: its ring is not to be seen by its symbols. LIBRARY is the preload library, or empty.
set -eu
archive=$(cc -print-file-name=liburing.a 2>/dev/null) && [ "$archive" != liburing.a ] || { echo "no cc, or no liburing.a"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -O1 -o "$folder/program" tests/preload/liburing.c "$archive"
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$folder/program" 1000
