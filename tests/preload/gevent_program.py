# gevent_program.py serve | ask PORT HTTP_PORT: messages are echoed with their checksum; each eighth passes through a program.
import gevent.monkey
gevent.monkey.patch_all()
import gevent, hashlib, http.client, os, random, socket, struct, subprocess, sys
from gevent.pywsgi import WSGIServer
from gevent.server import StreamServer

CONNECTIONS, MESSAGES = 20, 10
port, http_port = int(sys.argv[2]), int(sys.argv[3])

def exactly(stream, size):
    found = stream.read(size)
    assert len(found) == size, (len(found), size)
    return found

def talk(sock, _):
    stream = sock.makefile("rb")
    while head := stream.read(4):
        size, = struct.unpack(">I", head)
        body = exactly(stream, size)
        if size % 8 == 0: body = subprocess.run(["cat"], input=body, stdout=subprocess.PIPE, check=True).stdout
        sock.sendall(hashlib.sha256(body).digest() + body)

def site(environment, respond):
    body = environment["wsgi.input"].read()
    respond("200 OK", [("Content-Length", str(len(body)))])
    return [body[:len(body) // 2], body[len(body) // 2:]]

def ask(number):
    chance = random.Random(number)
    with socket.create_connection(("127.0.0.1", port)) as sock, sock.makefile("rb") as stream:
        for _ in range(MESSAGES):
            body = chance.randbytes(chance.choice([3, 1000, 50000, 400000]) + chance.randrange(9))
            sock.sendall(struct.pack(">I", len(body)) + body)
            assert exactly(stream, 32) == hashlib.sha256(body).digest() and exactly(stream, len(body)) == body
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == b""

def fetch(number):
    chance = random.Random(number)
    client = http.client.HTTPConnection("127.0.0.1", http_port)
    for _ in range(MESSAGES):
        body = chance.randbytes(chance.choice([10, 3000, 300000]))
        client.request("POST", "/", body)
        assert client.getresponse().read() == body
    client.close()

if sys.argv[1] == "serve":
    messages = StreamServer(("127.0.0.1", port), talk)
    messages.start()
    WSGIServer(("127.0.0.1", http_port), site, log=None).serve_forever()
jobs = [gevent.spawn(work, number) for number in range(CONNECTIONS) for work in (ask, fetch)]
gevent.joinall(jobs, raise_error=True)
print(f"{len(jobs) * MESSAGES} answers equal on {len(jobs)} connections")
