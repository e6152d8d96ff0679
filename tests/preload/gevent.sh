# gevent: a server of messages and one of http, each with 20 connections, which starts programs. LIBRARY is the preload library, or empty.
. tests/preload/common
python=/usr/bin/python3
$python -c 'import gevent' 2>/dev/null || { echo "python3-gevent is not installed"; exit 77; }
start $python tests/preload/gevent_program.py serve $port $second
soon listens $second
watch
with $python tests/preload/gevent_program.py ask $port $second
shared python3
