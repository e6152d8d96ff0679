// Writes that are larger than a ring, to a peer that does not read yet: large_writes PART
//
// TCP holds megabytes between two ends. The program ends with 0 if every byte was right, before its alarm.
#define PROGRAM "large_writes"
#include "program.h"

enum { KIB = 1 << 10, ROUNDS = 40, ROUND_MAX = 600 * KIB, LARGE = 3000 * KIB, STREAM = 24 << 20, PIECE = 100 * KIB, LIMIT_S = 100 };
static unsigned char bytes[LARGE], found[LARGE];

// Byte of a position of one direction.
static unsigned char byte_at(uint64_t position, int direction) {
    return (position * 2654435761u >> 16) + direction;
}

static void fill(uint64_t from, size_t count, int direction) {
    for (size_t i = 0; i < count; i++) bytes[i] = byte_at(from + i, direction);
}

static void check(uint64_t from, size_t count, int direction) {
    for (size_t i = 0; i < count; i++)
        if (found[i] != byte_at(from + i, direction)) fail("a wrong byte");
}

static int wait_for(int set, int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    struct epoll_event event = {.events = events};
    if (set < 0) return poll(&entry, 1, -1);
    int ready = epoll_wait(set, &event, 1, -1);
    return ready;
}

// A way to wait for a socket that does not block: 0 blocks, 1 polls, 2 and 3 wait in a set by level and by edge, 4 tries again and again.
enum { WAYS = 5 };

static int set_for(int fd, int way, int events) {
    if (way > 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) fail("O_NONBLOCK");
    if (way != 2 && way != 3) return -1;
    struct epoll_event event = {.events = events | (way == 3 ? EPOLLET : 0)};
    int set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    return set;
}

static void write_all(int fd, int set, int way, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t written = write(fd, bytes + done, count - done);
        if (written < 0 && errno != EAGAIN) fail("write");
        if (written > 0) done += written;
        else if (way == 4) usleep(1000);
        else if (wait_for(set, fd, EPOLLOUT) < 0) fail("wait");
    }
}

static void read_all(int fd, int set, int way, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t got = read(fd, found + done, count - done);
        if (got == 0 || got < 0 && errno != EAGAIN) fail("read");
        if (got > 0) done += got;
        else if (way == 4) usleep(1000);
        else if (wait_for(set, fd, EPOLLIN) < 0) fail("wait");
    }
}

// Both ends write a message before they read that of the other one.
static void exchange(int way, size_t largest, int rounds) {
    int fd, own;
    pid_t child = make_pair(&fd);
    int set = set_for(fd, way, EPOLLIN | EPOLLOUT);
    uint64_t position = 0;
    own = child == 0;
    for (int round = 0; round < rounds; round++) {
        size_t count = round % 4 == 3 ? 1 + round : largest - round % 7 * 1001;
        fill(position, count, own);
        write_all(fd, set, way, count);
        read_all(fd, set, way, count);
        check(position, count, !own);
        position += count;
    }
    if (!child) _exit(0);
    join(child);
    close(fd), close(set);
}

static void exchange_messages(void) {
    for (int way = 0; way < WAYS; way++) exchange(way, ROUND_MAX, ROUNDS);
    exchange(0, LARGE, 4);
}

// The peer reads nothing before it is told by another way that everything is written.
static void write_to_idle_peer(void) {
    for (int way = 0; way < WAYS; way++) {
        int fd, ends[2];
        char word;
        if (pipe(ends)) fail("pipe");
        pid_t child = make_pair(&fd);
        if (child) {
            int set = set_for(fd, way, EPOLLOUT);
            for (int round = 0; round < 3; round++) {
                fill(round * ROUND_MAX, ROUND_MAX, 0);
                write_all(fd, set, way, ROUND_MAX);
            }
            if (write(ends[1], "x", 1) != 1) fail("tell");
            join(child);
            close(fd), close(set), close(ends[0]), close(ends[1]);
            continue;
        }
        if (read(ends[0], &word, 1) != 1) fail("hear");
        int set = set_for(fd, way, EPOLLIN), left;
        // The ring's bytes and TCP's are one number for the program.
        if (ioctl(fd, FIONREAD, &left) || left < 1) fail("FIONREAD");
        if (recv(fd, found, PIECE, MSG_PEEK) < 1) fail("MSG_PEEK");
        for (int round = 0; round < 3; round++) {
            read_all(fd, set, way, ROUND_MAX);
            check(round * ROUND_MAX, ROUND_MAX, 0);
        }
        _exit(0);
    }
}

// A long stream to a reader that stops now and then, in each way, and to its end.
static void stream_to_slow_reader(void) {
    for (int way = 0; way < WAYS; way++) {
        int fd;
        pid_t child = make_pair(&fd);
        if (child) {
            int set = set_for(fd, way, EPOLLOUT);
            for (uint64_t position = 0; position < STREAM; position += PIECE) {
                fill(position, PIECE, 0);
                write_all(fd, set, way, PIECE);
            }
            if (shutdown(fd, SHUT_WR)) fail("shutdown");
            if (way > 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK)) fail("O_NONBLOCK");
            get(fd, found, 1);
            join(child);
            close(fd), close(set);
            continue;
        }
        int set = set_for(fd, way, EPOLLIN), piece = 0;
        uint64_t position = 0, end = (STREAM + PIECE - 1) / PIECE * PIECE;
        while (position < end) {
            size_t count = 1 + piece * 7919 % (3 * PIECE);
            if (count > end - position) count = end - position;
            read_all(fd, set, way, count);
            check(position, count, 0);
            position += count;
            if (piece++ % 16 == 0) usleep(30000);
        }
        for (ssize_t got; (got = read(fd, found, 1)) != 0;) {
            if (got > 0 || errno != EAGAIN) fail("the end");
            wait_for(set, fd, EPOLLIN);
        }
        put(fd, "x", 1);
        _exit(0);
    }
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    alarm(LIMIT_S);
    if (!strcmp(part, "exchange")) exchange_messages();
    else if (!strcmp(part, "idle")) write_to_idle_peer();
    else if (!strcmp(part, "slow")) stream_to_slow_reader();
    else return 2;
    return 0;
}
