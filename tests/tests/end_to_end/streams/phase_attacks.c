// Calls that meet the border of two phases of a stream: phase_attacks PART
//
// The program ends with 0 if each call did what it does on TCP, before its alarm.
#define PROGRAM "phase_attacks"
#include "program.h"
#include <time.h>

enum { RING = 256 << 10, MORE = 1000, LARGE = 600 << 10, LIMIT_S = 40, LOOKS = 2000, TURNS = 60, SLEEP_MS = 1000, PARTS = 40 };
static unsigned char bytes[LARGE], found[LARGE];

// Makes a pair whose parent writes and whose child reads.
static pid_t begin(int *fd) {
    for (int i = 0; i < LARGE; i++) bytes[i] = (uint64_t)i * 2654435761u >> 16;
    make_pipes();
    return make_pair(fd);
}

// The parent fills the ring and goes on by TCP, the child leaves `left` bytes of the ring.
static pid_t begin_on_border(int *fd, int left) {
    pid_t child = begin(fd);
    if (child) {
        put(*fd, bytes, RING + MORE);
        tell(to_child[1]);
    } else {
        hear(to_child[0]);
        get(*fd, found, RING - left);
    }
    return child;
}

static void expect(size_t from, size_t count) {
    if (memcmp(found, bytes + from, count)) fail("a wrong byte");
}

// Peeks until so many bytes are there, as programs do that wait for a whole header.
static void peek(int fd, size_t from, size_t count) {
    ssize_t seen = 0;
    for (int look = 0; look < LOOKS && seen < (ssize_t)count; look++) {
        if ((seen = recv(fd, found, count, MSG_PEEK)) < 0) fail("MSG_PEEK");
        if (seen < (ssize_t)count) usleep(1000);
    }
    if (seen != (ssize_t)count) fail("bytes that cannot be peeked");
    expect(from, count);
}

static void peek_over_border(void) {
    int fd;
    pid_t child = begin_on_border(&fd, 100);
    if (child) {
        hear(to_parent[0]);
        put(fd, bytes + RING + MORE, MORE);
        tell(to_child[1]);
        join(child);
        return;
    }
    peek(fd, RING - 100, 600);
    get(fd, found, 200);
    expect(RING - 100, 200);
    // The rest is on TCP; what follows comes by the ring.
    tell(to_parent[1]), hear(to_child[0]);
    peek(fd, RING + 100, MORE + 500);
    get(fd, found, 2 * MORE - 100);
    expect(RING + 100, 2 * MORE - 100);
    _exit(0);
}

static void wait_for_low_water(void) {
    int fd, low = 1500, back = 1;
    pid_t child = begin_on_border(&fd, 100);
    if (child) {
        hear(to_parent[0]);
        put(fd, bytes + RING + MORE, MORE);
        tell(to_child[1]);
        join(child);
        return;
    }
    get(fd, found, 101);
    tell(to_parent[1]), hear(to_child[0]);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low)) fail("SO_RCVLOWAT");
    struct pollfd entry = {fd, POLLIN, 0};
    if (poll(&entry, 1, -1) != 1) fail("poll");
    get(fd, found, 2 * MORE - 1);
    expect(RING + 1, 2 * MORE - 1);
    _exit(0);
}

// Waits from outside for a set that waits for space, by level and by edge.
static void write_through_nested_set(int way, int edge) {
    int fd;
    pid_t child = begin(&fd);
    if (!child) {
        hear(to_child[0]);
        get(fd, found, LARGE);
        expect(0, LARGE);
        _exit(0);
    }
    struct epoll_event event = {.events = EPOLLOUT | edge};
    int inner = epoll_create1(0), outer = epoll_create1(0);
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) fail("O_NONBLOCK");
    if (epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    event.events = EPOLLIN;
    if (epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event)) fail("epoll_ctl");
    for (size_t done = 0; done < LARGE;) {
        ssize_t written = write(fd, bytes + done, LARGE - done);
        if (written < 0 && errno != EAGAIN) fail("write");
        if (written > 0) done += written;
        else {
            struct pollfd entry = {inner, POLLIN, 0};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(inner, &set);
            int ready = way == 0   ? poll(&entry, 1, -1)
                        : way == 1 ? epoll_wait(outer, &event, 1, -1)
                                   : select(inner + 1, &set, NULL, NULL, NULL);
            if (ready != 1) fail("outer wait");
            epoll_wait(inner, &event, 1, 0);
        }
    }
    tell(to_child[1]);
    join(child);
}

// A registration that the set has left to its bell hears of space in TCP, which the peer's request made the way of the bytes.
static void hear_of_space_after_request(void) {
    int fd;
    pid_t child = begin(&fd);
    if (!child) {
        fcntl(fd, F_SETOWN, getpid());
        signal(SIGIO, SIG_IGN);
        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC)) fail("O_ASYNC");
        tell(to_parent[1]), hear(to_child[0]);
        uint64_t total = 0;
        for (ssize_t count; (count = read(fd, found, sizeof found)) > 0;) total += count;
        if (write(to_parent[1], &total, sizeof total) != sizeof total) fail("total");
        _exit(0);
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    int set = epoll_create1(0);
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) fail("O_NONBLOCK");
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    hear(to_parent[0]);
    for (int turn = 0; turn < TURNS; turn++) epoll_wait(set, &event, 1, 1);
    uint64_t written = 0, total = 0;
    for (ssize_t count; (count = write(fd, bytes, sizeof bytes)) > 0;) written += count;
    if (errno != EAGAIN) fail("write");
    while (epoll_wait(set, &event, 1, 100) > 0) continue;
    tell(to_child[1]);
    if (epoll_wait(set, &event, 1, -1) != 1 || !(event.events & EPOLLOUT)) fail("no word of space");
    shutdown(fd, SHUT_WR);
    if (read(to_parent[0], &total, sizeof total) != sizeof total || total != written) fail("bytes");
    join(child);
}

// A program that has no interest any more sleeps, whatever the peer sends.
static void sleep_without_interest(int way) {
    int fd;
    pid_t child = begin(&fd);
    if (child) {
        hear(to_parent[0]);
        put(fd, bytes, RING + MORE);
        tell(to_child[1]);
        join(child);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    epoll_wait(set, &event, 1, 10);
    if (way == 0 && epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)) fail("DEL");
    event.events = 0;
    if (way == 1 && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) fail("MOD");
    tell(to_parent[1]);
    clock_t before = clock();
    if (epoll_wait(set, &event, 1, SLEEP_MS)) fail("an event without an interest");
    // CPU time: other programs do not count.
    if (clock() - before > CLOCKS_PER_SEC / 10) fail("a wait that spins");
    hear(to_child[0]);
    get(fd, found, RING + MORE);
    expect(0, RING + MORE);
    _exit(0);
}

// A read with many parts fills all of them if the bytes are there.
static void read_into_many_parts(void) {
    int fd;
    pid_t child = begin_on_border(&fd, 0);
    if (child) {
        join(child);
        return;
    }
    struct iovec parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = (struct iovec){found + i, 1};
    ssize_t count = readv(fd, parts, PARTS);
    if (count != PARTS) fail("a short read");
    expect(RING, PARTS);
    _exit(0);
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    alarm(LIMIT_S);
    if (!strcmp(part, "peek")) peek_over_border();
    else if (!strcmp(part, "low")) wait_for_low_water();
    else if (!strcmp(part, "nested"))
        for (int way = 0; way < 6; way++) write_through_nested_set(way / 2, way % 2 ? EPOLLET : 0);
    else if (!strcmp(part, "space")) hear_of_space_after_request();
    else if (!strcmp(part, "sleep"))
        for (int way = 0; way < 2; way++) sleep_without_interest(way);
    else if (!strcmp(part, "parts")) read_into_many_parts();
    else return 2;
    return 0;
}
