# Tornado: two forked processes serve messages, http and websockets. LIBRARY is the preload library, or empty.
. tests/preload/common
python=/usr/bin/python3
$python -c 'import tornado' 2>/dev/null || { echo "python3-tornado is not installed"; exit 77; }
start $python tests/preload/tornado_program.py serve $port $second
soon listens $second
watch
with $python tests/preload/tornado_program.py ask $port $second
shared python3
