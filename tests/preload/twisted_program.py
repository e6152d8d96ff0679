# twisted_program.py REACTOR serve | ask PORT HTTP_PORT: messages are echoed with their checksum; each eighth passes through a program.
import hashlib, importlib, random, sys
importlib.import_module(f"twisted.internet.{sys.argv[1]}reactor").install()
from io import BytesIO
from twisted.internet import defer, endpoints, protocol, reactor
from twisted.protocols.basic import Int32StringReceiver
from twisted.web import resource, server
from twisted.web.client import Agent, FileBodyProducer, HTTPConnectionPool, readBody

CONNECTIONS, MESSAGES = 10, 10
port, http_port = int(sys.argv[3]), int(sys.argv[4])

class Filter(protocol.ProcessProtocol):
    def __init__(self, body):
        self.body, self.found, self.done = body, b"", defer.Deferred()
    def connectionMade(self):
        self.transport.write(self.body)
        self.transport.closeStdin()
    def outReceived(self, data): self.found += data
    def processEnded(self, _): self.done.callback(self.found)

class Talk(Int32StringReceiver):
    MAX_LENGTH = 1 << 20
    def connectionMade(self): self.order = defer.DeferredLock()
    def stringReceived(self, body): self.order.run(self.answer, body)
    @defer.inlineCallbacks
    def answer(self, body):
        if len(body) % 8 == 0:
            program = Filter(body)
            reactor.spawnProcess(program, "cat", ["cat"], env=None)
            body = yield program.done
        self.sendString(hashlib.sha256(body).digest() + body)

class Site(resource.Resource):
    isLeaf = True
    def render_POST(self, request): return request.content.read()

class Ask(Talk):
    def ask(self, chance, done):
        self.chance, self.done, self.left = chance, done, MESSAGES
        self.next()
    def next(self):
        self.body = self.chance.randbytes(self.chance.choice([3, 1000, 50000, 400000]) + self.chance.randrange(9))
        self.sendString(self.body)
    def stringReceived(self, found):
        if found != hashlib.sha256(self.body).digest() + self.body: return self.done.errback(ValueError("another answer"))
        self.left -= 1
        self.next() if self.left else self.transport.loseConnection()
    def connectionLost(self, why):
        if not self.done.called: self.done.errback(why) if self.left else self.done.callback(None)

@defer.inlineCallbacks
def ask(number):
    ends = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    talk, done = (yield ends.connect(protocol.Factory.forProtocol(Ask))), defer.Deferred()
    talk.ask(random.Random(number), done)
    yield done

@defer.inlineCallbacks
def fetch(agent, number):
    chance = random.Random(number)
    for _ in range(MESSAGES):
        body = chance.randbytes(chance.choice([10, 3000, 300000]))
        answer = yield agent.request(b"POST", b"http://127.0.0.1:%d/" % http_port, bodyProducer=FileBodyProducer(BytesIO(body)))
        assert (yield readBody(answer)) == body

@defer.inlineCallbacks
def run():
    global is_right
    pool = HTTPConnectionPool(reactor)
    pool.maxPersistentPerHost = CONNECTIONS
    agent = Agent(reactor, pool)
    jobs = [job for number in range(CONNECTIONS) for job in (ask(number), fetch(agent, number))]
    try:
        yield defer.gatherResults(jobs)
        yield pool.closeCachedConnections()
        is_right = True
    finally: reactor.stop()

if sys.argv[2] == "serve":
    reactor.listenTCP(port, protocol.Factory.forProtocol(Talk), interface="127.0.0.1")
    reactor.listenTCP(http_port, server.Site(Site()), interface="127.0.0.1")
    reactor.run()
    sys.exit()
is_right = False
reactor.callWhenRunning(lambda: run().addErrback(print))
reactor.run()
assert is_right
print(f"{2 * CONNECTIONS * MESSAGES} answers equal, {type(reactor).__name__}")
