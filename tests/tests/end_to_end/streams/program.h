// Helpers of the C programs of this folder. Each program defines PROGRAM, its name, before it includes this file.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUND_TRIPS = 8 };

static inline void fail(const char *what) {
    fprintf(stderr, PROGRAM ": %s: %s\n", what, strerror(errno));
    _exit(1);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, PROGRAM ": line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

static int to_child[2], to_parent[2];

// Makes the pipes by which both processes of a test tell each other to go on.
static inline void make_pipes(void) {
    if (pipe(to_child) || pipe(to_parent)) fail("pipe");
}

static inline void tell(int pipe) {
    if (write(pipe, "x", 1) != 1) fail("tell");
}

static inline void hear(int pipe) {
    char word;
    if (read(pipe, &word, 1) != 1) fail("hear");
}

// Counts the streams in shared memory.
static inline int shared_streams(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found += strstr(line, "/memfd:ddss-stream ") != NULL;
    if (maps) fclose(maps);
    return found;
}

static inline int is_shared(void) {
    return shared_streams() > 0;
}

static inline int has_library(void) {
    return *(getenv("LD_PRELOAD") ?: "") != 0;
}

// Listens on a port of loopback that the kernel chooses.
static inline int listen_on(struct sockaddr_in *name) {
    socklen_t length = sizeof *name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)name, length) || listen(listener, 512) || getsockname(listener, (void *)name, &length))
        fail("listen");
    return listener;
}

// The same, for a test that reads the port.
static inline int listen_and_say(void) {
    struct sockaddr_in name;
    int listener = listen_on(&name);
    printf("PORT %d\n", ntohs(name.sin_port));
    fflush(stdout);
    return listener;
}

// Reads so many bytes. Calls may be interrupted.
static inline void get(int fd, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t found = read(fd, (char *)to + done, bytes - done);
        if (found == 0 || (found < 0 && errno != EINTR && errno != EAGAIN)) fail("read");
        if (found > 0) done += found;
    }
}

static inline void put(int fd, const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(fd, (const char *)from + done, bytes - done);
        if (written < 0 && errno != EINTR && errno != EAGAIN) fail("write");
        if (written > 0) done += written;
    }
}

// Sends a word and gets it back.
static inline void trip(int fd, uint64_t word) {
    uint64_t answer = 0;
    put(fd, &word, sizeof word);
    get(fd, &answer, sizeof answer);
    if (answer != word) fail("a wrong answer");
}

// Answers the round trips after which a stream has left TCP.
static inline void answer_trips(int fd) {
    uint64_t word;
    for (int round = 0; round < ROUND_TRIPS; round++) get(fd, &word, sizeof word), put(fd, &word, sizeof word);
}

static inline void make_trips(int fd) {
    for (int round = 0; round < ROUND_TRIPS; round++) trip(fd, round);
}

// The port is bound here: after a slow search for one, as on a busy machine, the library leaves connections on TCP for a while.
static inline int connect_to(const struct sockaddr_in *name) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&own, sizeof own) || (connect(fd, (void *)name, sizeof *name) && errno != EINTR)) fail("connect");
    return fd;
}

static inline int connect_to_port(const char *port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
    return connect_to(&name);
}

// Makes a stream between two processes: returns 0 in the child, which accepted, and its number in the parent, which connected. Both ends
// have left TCP if the program has the library.
static inline pid_t make_pair(int *fd) {
    struct sockaddr_in name;
    int listener = listen_on(&name);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if ((*fd = accept(listener, NULL, NULL)) < 0) fail("accept");
        close(listener);
        answer_trips(*fd);
        return 0;
    }
    close(listener);
    *fd = connect_to(&name);
    make_trips(*fd);
    if (has_library() && !shared_streams()) fail("the stream stayed on TCP");
    return child;
}

// Waits for the end of the child of `make_pair`.
static inline void join(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the child failed");
}
