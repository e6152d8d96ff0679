// One end of a stream of the campaign: peer accept | connect PORT, then MODE SEED COUNT_FILE LIMIT FAULTS; peer serve; peer connects PORT COUNT
//
// The byte at a position says where it belongs, so that a reader finds each wrong, lost or repeated byte. COUNT_FILE holds the number
// of bytes that `write` took: they have to arrive although the writer is killed. A LIMIT that is not 0 ends each direction.
// FAULTS: 1 forks at random moments, 2 interrupts all calls by signals whose handler uses the stream.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUND_TRIPS = 8, CHUNK = 100000, UNREAD = 30000, WARM_UP = 2000 };
enum { REQUEST = 8, ANSWER = 160000, PAUSE_US = 200, LARGE = 600 << 10 };
enum { THREADS, PING_PONG, EPOLL_LEVEL, EPOLL_EDGE, POLL, SHORT_CALLS, ANSWERS, MESSAGES };
enum { FORKS = 1, SIGNALS = 2, FORK_EVERY = 16, LINGER_US = 2000, ALARM_US = 300 };
enum { ENDS, LINGERS, CLOSES, EXECUTES, WRITES, KINDS };

static int fd, side, count_file, faults;
static uint64_t state, fault_state, sent, received, limit, tcp_before;
static char room[CHUNK], chunk[CHUNK];

static void fail(const char *what) {
    printf("FAILED %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t next_of(uint64_t *from) {
    *from ^= *from << 13, *from ^= *from >> 7, *from ^= *from << 17;
    return *from >> 11;
}

// Both ends draw the same: a ping-pong needs that.
static uint32_t next(void) { return next_of(&state); }
static uint32_t next_fault(void) { return next_of(&fault_state); }

static char pattern(uint64_t position, int from) { return (position * 0x9e3779b1u >> 13) + 101 * from; }

static int lines_with(const char *path, const char *text) {
    char line[512];
    int found = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) found += strstr(line, text) != NULL;
    if (file) fclose(file);
    return found;
}

static int is_shared(void) { return lines_with("/proc/self/maps", "/memfd:ddss-stream ") > 0; }

// Returns the number of bytes that came by TCP.
static uint64_t tcp_received(void) {
    struct tcp_info found = {0};
    socklen_t length = sizeof found;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &found, &length) ? 0 : found.tcpi_bytes_received;
}

// Reads once. 0: the stream ended or failed. -1: it has no bytes now.
static int take(size_t most) {
    ssize_t found = read(fd, room, most);
    if (found < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
    if (found <= 0) return 0;
    for (ssize_t i = 0; i < found; i++)
        if (room[i] != pattern(received + i, !side)) fail("wrong byte");
    received += found;
    return found;
}

// Writes once, at most so many bytes. 0: the peer is gone, or the limit is reached. -1: there is no room now.
static int give_here(size_t most) {
    if (limit && sent >= limit) {
        shutdown(fd, SHUT_WR);
        return 0;
    }
    for (size_t i = 0; i < most; i++) chunk[i] = pattern(sent + i, side);
    ssize_t written = write(fd, chunk, most);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
    if (written <= 0) return 0;
    sent += written;
    if (pwrite(count_file, &sent, sizeof sent, 0) != sizeof sent) fail("count");
    return written;
}

// Forks. The child dies with the thread that made it. Returns its number, or 0 in the child.
static pid_t fork_bound(void) {
    pid_t parent = getpid(), child = fork();
    if (child < 0) fail("fork");
    if (!child && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)) _exit(1);
    return child;
}

static int status_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("waitpid");
    return status;
}

// Writes as `give_here`, now and then beside a child that has the stream, or by one.
static int give(size_t most) {
    if (!(faults & FORKS) || next_fault() % FORK_EVERY) return give_here(most);
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    int kind = next_fault() % KINDS;
    pid_t child = fork_bound();
    if (!child) {
        if (kind == LINGERS) usleep(next_fault() % LINGER_US);
        if (kind == CLOSES) close(fd);
        if (kind == EXECUTES) execlp("true", "true", NULL);
        _exit(kind == WRITES && !give_here(most));
    }
    if (kind != WRITES) return give_here(most);
    int status = status_of(child);
    uint64_t before = sent;
    if (pread(count_file, &sent, sizeof sent, 0) != sizeof sent) sent = before;
    return sent > before ? (int)(sent - before) : status ? 0 : -1;
}

// A child goes on with the stream, which this process keeps open or not until then.
static void hand_over(void) {
    pid_t child = fork_bound();
    if (!child) return;
    if (next_fault() % 2) close(fd);
    _exit(status_of(child) != 0);
}

static void on_alarm(int unused) {
    int error = errno;
    struct pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, 0);
    errno = error;
}

static void interrupt(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = next_fault() % 2 ? SA_RESTART : 0};
    struct itimerval often = {{0, ALARM_US + next_fault() % ALARM_US}, {0, ALARM_US}};
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL)) fail("setitimer");
}

static size_t some(void) { return 1 + next() % (next() % 2 ? 200 : CHUNK); }

static void *write_all(void *unused) {
    while (give(some())) {}
    return unused;
}

static void ping_pong(void) {
    for (int is_turn = side;; is_turn = !is_turn) {
        size_t bytes = some();
        for (size_t done = 0; done < bytes;) {
            int moved = is_turn ? give(bytes - done) : take(bytes - done);
            if (!moved) return;
            if (moved > 0) done += moved;
        }
    }
}

static void with_epoll(uint32_t mode) {
    int set = epoll_create1(0), is_writing = 1, moved;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | mode};
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
    for (;;) {
        if (epoll_wait(set, &event, 1, -1) < 0 && errno != EINTR) fail("epoll_wait");
        do {
            moved = take(sizeof room);
        } while (mode && moved > 0);
        if (!moved) return;
        while (is_writing && (moved = give(some())) > 0 && mode) {}
        if (is_writing && !moved) is_writing = 0;
        event.events = EPOLLIN | (is_writing ? EPOLLOUT : 0) | mode;
        if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) fail("epoll_ctl");
    }
}

static void with_poll(void) {
    int is_writing = 1;
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
    for (;;) {
        struct pollfd entry = {fd, POLLIN | (is_writing ? POLLOUT : 0), 0};
        if (poll(&entry, 1, -1) < 0 && errno != EINTR) fail("poll");
        if (entry.revents & (POLLIN | POLLHUP | POLLERR) && !take(sizeof room)) return;
        if (is_writing && entry.revents & POLLOUT && !give(some())) is_writing = 0;
    }
}

// As runtimes of tasks do: the registration never changes, and a call that moves fewer bytes than it could waits for the next edge.
static void with_short_calls(void) {
    int set = epoll_create1(0), is_writing = 1, has_ended = 0, moved;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
    for (;;) {
        if (epoll_wait(set, &event, 1, -1) < 0 && errno != EINTR) fail("epoll_wait");
        has_ended |= event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        while ((moved = take(sizeof room)) == sizeof room || (moved > 0 && has_ended)) {}
        if (!moved) return;
        for (size_t bytes = some(); is_writing && (moved = give(bytes)) == (int)bytes; bytes = some()) {}
        if (is_writing && !moved) is_writing = 0;
    }
}

// As a server of files and its client do: only the return of space is an edge for the server while it answers.
static void with_answers(void) {
    int set = epoll_create1(0), moved = 1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    size_t left = 0;
    while (side) {
        for (size_t done = 0; done < REQUEST; done += moved > 0 ? moved : 0)
            if (!(moved = give(REQUEST - done))) return;
        for (size_t done = 0; done < ANSWER; done += moved > 0 ? moved : 0)
            if (!(moved = take(sizeof room))) return;
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
    while (moved) {
        if (epoll_wait(set, &event, 1, -1) < 0 && errno != EINTR) fail("epoll_wait");
        while ((moved = take(REQUEST)) > 0) left += moved * (ANSWER / REQUEST);
        while (moved && left && (moved = give(left < CHUNK ? left : CHUNK)) > 0) left -= moved;
        // As if it answered others, or had lost its core: the client empties the ring before the server waits.
        if (left && next() % 4 == 0) usleep(PAUSE_US);
    }
    // What the client still sends is read to its end.
    if (fcntl(fd, F_SETFL, 0)) fail("fcntl");
}

// Both ends write a message that is larger than a ring before they read one: each direction goes on by TCP, and comes back.
static void with_messages(void) {
    int moved;
    for (;;) {
        for (size_t done = 0; done < LARGE; done += moved > 0 ? moved : 0)
            if (!(moved = give(LARGE - done < CHUNK ? LARGE - done : CHUNK))) return;
        for (size_t done = 0; done < LARGE; done += moved > 0 ? moved : 0)
            if (!(moved = take(LARGE - done < CHUNK ? LARGE - done : CHUNK))) return;
    }
}

static void transfer(int mode) {
    pthread_t writer;
    if (faults & FORKS && next_fault() % 4 == 0) hand_over();
    if (faults & SIGNALS) interrupt();
    switch (mode) {
    case THREADS:
        if (pthread_create(&writer, NULL, write_all, NULL)) fail("thread");
        while (take(sizeof room)) {}
        pthread_join(writer, NULL);
        break;
    case PING_PONG: ping_pong(); break;
    case EPOLL_LEVEL: with_epoll(0); break;
    case EPOLL_EDGE: with_epoll(EPOLLET); break;
    case POLL: with_poll(); break;
    case SHORT_CALLS: with_short_calls(); break;
    case MESSAGES: with_messages(); break;
    default: with_answers();
    }
    while (take(sizeof room)) {}
    shutdown(fd, SHUT_WR);
}

static int listen_any(int backlog) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t length = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&name, length) || listen(listener, backlog) || getsockname(listener, (void *)&name, &length))
        fail("listen");
    printf("PORT %d\n", ntohs(name.sin_port));
    return listener;
}

// Connects from an address of its own, so that ports in TIME-WAIT do not run out.
static int connect_from(uint32_t source, int port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int made = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(made, (void *)&own, sizeof own) || connect(made, (void *)&peer, sizeof peer)) fail("connect");
    return made;
}

// Exchanges words until both ends have left TCP. False: the peer is gone.
static int exchange(int rounds) {
    for (uint64_t round = 0, word; round < (uint64_t)rounds; round++) {
        // The peer begins its transfer after the last round.
        if (round + 1 == (uint64_t)rounds) tcp_before = tcp_received();
        if (side && write(fd, &round, sizeof round) != sizeof round) return 0;
        if (recv(fd, &word, sizeof word, MSG_WAITALL) != sizeof word) return 0;
        if (!side && write(fd, &word, sizeof word) != sizeof word) return 0;
    }
    return 1;
}

static int transfer_part(char **arguments) {
    limit = strtoull(arguments[5], NULL, 10);
    int mode = atoi(arguments[2]);
    state = strtoull(arguments[3], NULL, 10) * 2654435761u + 88172645463325252u;
    fault_state = state + side;
    faults = atoi(arguments[6]);
    if ((count_file = open(arguments[4], O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) fail("open");
    if (side) {
        fd = connect_from(INADDR_LOOPBACK, atoi(arguments[1]));
    } else {
        int listener = listen_any(1);
        if ((fd = accept(listener, NULL, NULL)) < 0) fail("accept");
        close(listener);
    }
    printf("CONNECTED\n");
    int is_ready = exchange(ROUND_TRIPS), shared = is_shared();
    if (is_ready) printf("READY\n"), transfer(mode);
    printf("END %llu %d %llu\n", (unsigned long long)received, shared, (unsigned long long)(tcp_received() - tcp_before));
    return 0;
}

static void statistics(const char *who) {
    int descriptors = 0;
    long pages[2] = {0};
    DIR *folder = opendir("/proc/self/fd");
    FILE *memory = fopen("/proc/self/statm", "r");
    while (folder && readdir(folder)) descriptors++;
    if (!folder || !memory || fscanf(memory, "%ld %ld", &pages[0], &pages[1]) != 2) fail("/proc");
    closedir(folder), fclose(memory);
    printf("STATISTICS %s %d %d %ld\n", who, descriptors, lines_with("/proc/self/maps", ""), pages[1]);
}

static int serve(void) {
    int listener = listen_any(128);
    for (;;) {
        ssize_t found;
        int is_first = 1;
        if ((fd = accept(listener, NULL, NULL)) < 0) fail("accept");
        while ((found = read(fd, room, sizeof room)) > 0) {
            if (is_first && *room == 'S') statistics("acceptor");
            if (is_first && *room == 'Q') return 0;
            is_first = 0;
            if (write(fd, room, found) < 0) break;
        }
        close(fd);
    }
}

static void tell(int port, char what) {
    char answer;
    fd = connect_from(INADDR_LOOPBACK, port);
    if (write(fd, &what, 1) != 1 || (what == 'S' && read(fd, &answer, 1) != 1)) fail("tell");
    close(fd);
    if (what == 'S') statistics("connector");
}

// Connections that end at once, after one answer, after leaving TCP, and after leaving TCP with bytes that nobody read.
static int connects(int port, long count) {
    static const int rounds[] = {0, 1, ROUND_TRIPS, ROUND_TRIPS};
    long shared = 0;
    side = 1;
    for (long i = 0; i < count; i++) {
        fd = connect_from(INADDR_LOOPBACK + 256 * (1 + i / 200 % 200), port);
        if (!exchange(rounds[i % 4])) fail("exchange");
        if (i % 4 == 3 && write(fd, chunk, UNREAD) < 0) fail("write");
        if (i % 1000 == 2) shared += is_shared();
        close(fd);
        if (i == WARM_UP || i == count - 1) tell(port, 'S');
    }
    tell(port, 'Q');
    printf("SHARED %ld\n", shared);
    return 0;
}

int main(int count, char **arguments) {
    setlinebuf(stdout);
    signal(SIGPIPE, SIG_IGN);
    if (count == 2 && !strcmp(arguments[1], "serve")) return serve();
    if (count == 4 && !strcmp(arguments[1], "connects")) return connects(atoi(arguments[2]), atol(arguments[3]));
    if (count != 8) return 2;
    side = !strcmp(arguments[1], "connect");
    return transfer_part(arguments + 1);
}
