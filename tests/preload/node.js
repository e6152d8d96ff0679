// A server with keep-alive that writes a file for each request, its client, and echoes over WebSockets: node node.js FOLDER ROUNDS [WS]
"use strict";
const assert = require("node:assert");
const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const [folder, rounds] = [process.argv[2], Number(process.argv[3])];
const WebSocket = process.argv[4] ? require(process.argv[4]) : null;

function bodyOf(round, client) {
    return Buffer.alloc(1 + (round * 7919) % 90000, `${client}:${round};`);
}

function serve() {
    const server = http.createServer((request, response) => {
        const parts = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", () => {
            const body = Buffer.concat(parts);
            const file = path.join(folder, request.headers["x-name"]);
            // Descriptors of files and of connections take turns with the same numbers.
            fs.writeFileSync(file, body);
            fs.writeFile(file + ".later", body, (error) => {
                assert.ifError(error);
                response.end(crypto.createHash("sha256").update(body).digest("hex"));
            });
        });
    });
    if (WebSocket) {
        new WebSocket.Server({ server }).on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
    }
    server.listen(0, "127.0.0.1", () => fs.writeFileSync(path.join(folder, "port"), String(server.address().port)));
    process.on("SIGTERM", () => process.exit(0));
}

function post(agent, port, name, body) {
    return new Promise((resolve, reject) => {
        const headers = { "x-name": name, "content-length": body.length };
        const request = http.request({ port, host: "127.0.0.1", method: "POST", agent, headers }, (response) => {
            let text = "";
            response.setEncoding("utf8").on("data", (part) => (text += part)).on("end", () => resolve(text));
        });
        request.on("error", reject).end(body);
    });
}

async function ask(port, client) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });
    for (let round = 0; round < rounds; round++) {
        // Now and then a connection of its own, which ends while others go on.
        const own = round % 5 === 0 ? new http.Agent({ keepAlive: false }) : agent;
        const body = bodyOf(round, client), name = `${client}-${round}`;
        const answer = await post(own, port, name, body);
        assert.strictEqual(answer, crypto.createHash("sha256").update(body).digest("hex"));
        for (const file of [name, name + ".later"]) {
            assert.ok(fs.readFileSync(path.join(folder, file)).equals(body), `${file} has other bytes`);
        }
    }
    agent.destroy();
}

function echo(port, client) {
    return new Promise((resolve, reject) => {
        const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
        let round = 0;
        const next = () => socket.send(bodyOf(round, client));
        socket.on("open", next).on("error", reject).on("close", resolve);
        socket.on("message", (data) => {
            assert.ok(data.equals(bodyOf(round, client)), "an echo has other bytes");
            fs.writeFileSync(path.join(folder, `ws-${client}`), data);
            if (++round < rounds) next();
            else socket.close();
        });
    });
}

async function main() {
    if (process.env.ROLE === "server") return serve();
    const port = Number(fs.readFileSync(path.join(folder, "port"), "utf8"));
    const clients = [0, 1, 2, 3];
    await Promise.all(clients.map((client) => ask(port, client)));
    if (WebSocket) await Promise.all(clients.map((client) => echo(port, client)));
    console.log(`${rounds * clients.length} requests, as many files${WebSocket ? ", as many echoes" : ""}`);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
