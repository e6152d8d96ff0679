# memcached with four threads, and clients in CPython. LIBRARY is the preload library, or empty.
set -eu
command -v memcached >/dev/null && command -v python3 >/dev/null || { echo "memcached or python3 is not installed"; exit 77; }
port=$((20000 + $$ % 12000)) server=
finish() { kill $server 2>/dev/null || true; wait; }
trap finish EXIT
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} memcached -u root -l 127.0.0.1 -p $port -t 4 -m 256 & server=$!
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
env ${LIBRARY:+LD_PRELOAD=$LIBRARY} "$python" - "$port" <<'TEXT'
import socket, sys, threading, time
port, wrong = int(sys.argv[1]), []
def connect():
    for _ in range(600):
        try: return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError: time.sleep(0.1)
    raise SystemExit("memcached does not listen")
def client(number):
    try:
        with connect() as stream, stream.makefile("rb") as answers:
            for turn in range(300):
                value = (b"%d-%d " % (number, turn)) * (1 + turn * 37 % 5000)
                stream.sendall(b"set k%d-%d 0 0 %d\r\n" % (number, turn, len(value)) + value + b"\r\nget k%d-%d\r\n" % (number, turn))
                assert answers.readline() == b"STORED\r\n"
                assert answers.readline() == b"VALUE k%d-%d 0 %d\r\n" % (number, turn, len(value))
                assert answers.read(len(value)) == value and answers.read(7) == b"\r\nEND\r\n"
    except BaseException as error: wrong.append(repr(error))
threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if wrong: raise SystemExit("\n".join(wrong))
TEXT
echo "4800 values equal on 16 connections"
