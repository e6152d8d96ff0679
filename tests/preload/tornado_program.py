# tornado_program.py serve | ask PORT HTTP_PORT: messages are echoed with their checksum; each eighth passes through a program.
import asyncio, ctypes, hashlib, random, signal, struct, sys
import tornado.httpserver, tornado.iostream, tornado.netutil, tornado.process, tornado.tcpclient, tornado.tcpserver, tornado.web, tornado.websocket
from tornado.httpclient import AsyncHTTPClient

CONNECTIONS, MESSAGES, PROCESSES = 10, 10, 2
port, http_port = int(sys.argv[2]), int(sys.argv[3])

class Talk(tornado.tcpserver.TCPServer):
    async def handle_stream(self, stream, _):
        try:
            while True:
                size, = struct.unpack(">I", await stream.read_bytes(4))
                body = await stream.read_bytes(size)
                if size % 8 == 0:
                    program = tornado.process.Subprocess(["cat"], stdin=tornado.process.Subprocess.STREAM, stdout=tornado.process.Subprocess.STREAM)
                    found = asyncio.ensure_future(program.stdout.read_until_close())
                    await program.stdin.write(body)
                    program.stdin.close()
                    body = await found
                    await program.wait_for_exit()
                await stream.write(hashlib.sha256(body).digest() + body)
        except tornado.iostream.StreamClosedError: pass

class Site(tornado.web.RequestHandler):
    async def post(self):
        half = len(self.request.body) // 2
        self.write(self.request.body[:half])
        await self.flush()
        self.write(self.request.body[half:])

class Socket(tornado.websocket.WebSocketHandler):
    async def on_message(self, message): await self.write_message(message, binary=True)

async def serve(listeners, http_listeners):
    Talk(max_buffer_size=1 << 21).add_sockets(listeners)
    site = tornado.web.Application([("/", Site), ("/socket", Socket)])
    tornado.httpserver.HTTPServer(site).add_sockets(http_listeners)
    await asyncio.Event().wait()

async def ask(number):
    chance = random.Random(number)
    stream = await tornado.tcpclient.TCPClient().connect("127.0.0.1", port, max_buffer_size=1 << 21)
    for _ in range(MESSAGES):
        body = chance.randbytes(chance.choice([3, 1000, 50000, 400000]) + chance.randrange(9))
        stream.write(struct.pack(">I", len(body)) + body)
        assert await stream.read_bytes(32 + len(body)) == hashlib.sha256(body).digest() + body
    stream.close()

async def fetch(number):
    chance = random.Random(number)
    for _ in range(MESSAGES):
        body = chance.randbytes(chance.choice([10, 3000, 300000]))
        answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{http_port}/", method="POST", body=body, request_timeout=100)
        assert answer.body == body

async def socket(number):
    chance = random.Random(number)
    connection = await tornado.websocket.websocket_connect(f"ws://127.0.0.1:{http_port}/socket")
    for _ in range(MESSAGES):
        body = chance.randbytes(chance.choice([10, 3000, 300000]))
        await connection.write_message(body, binary=True)
        assert await connection.read_message() == body
    connection.close()

async def run():
    jobs = [work(number) for number in range(CONNECTIONS) for work in (ask, fetch, socket)]
    await asyncio.gather(*jobs)
    print(f"{len(jobs) * MESSAGES} answers equal from {PROCESSES} processes")

if sys.argv[1] == "serve":
    listeners = [tornado.netutil.bind_sockets(each, "127.0.0.1") for each in (port, http_port)]
    tornado.process.fork_processes(PROCESSES)
    # PR_SET_PDEATHSIG: each forked process ends with the one that forked it.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    asyncio.run(serve(*listeners))
asyncio.run(run())
