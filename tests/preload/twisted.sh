# Twisted: messages, http, and programs that it starts, by four reactors. LIBRARY is the preload library, or empty.
. tests/preload/common
python=/usr/bin/python3
$python -c 'import twisted' 2>/dev/null || { echo "python3-twisted is not installed"; exit 77; }
watch
for reactor in epoll poll select asyncio; do
    start $python tests/preload/twisted_program.py $reactor serve $port $second
    soon listens $second
    with $python tests/preload/twisted_program.py $reactor ask $port $second
    kill ${running[-1]}
    wait ${running[-1]} || true
done
shared python3
