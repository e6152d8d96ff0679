// Descriptors and memory of many streams: costs serve | costs crowd PORT COUNT | costs fill PORT COUNT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUND_TRIPS = 8, COUNT_MAX = 1024, BLOCK = 100000, BLOCKS = 4, LOOKS = 100 };
static int sockets[COUNT_MAX];
static char block[BLOCK];

static void fail(const char *what) {
    fprintf(stderr, "costs: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void serve(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    socklen_t length = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    if (bind(listener, (void *)&name, length) || listen(listener, 64) || getsockname(listener, (void *)&name, &length))
        fail("listen");
    printf("PORT %d\n", ntohs(name.sin_port));
    fflush(stdout);
    event.data.fd = listener;
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                if ((event.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) fail("accept");
                if (epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event)) fail("epoll_ctl");
                continue;
            }
            ssize_t found = recv(fd, block, sizeof block, MSG_DONTWAIT);
            if (found > 0 && send(fd, block, found, MSG_NOSIGNAL) != found) fail("send");
            if (found == 0) close(fd);
        }
    }
}

static void exchange(int fd, size_t bytes) {
    if (write(fd, block, bytes) != bytes) fail("write");
    if (recv(fd, block, bytes, MSG_WAITALL) != bytes) fail("read");
}

static int connect_to(const char *port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&name, sizeof name)) fail("connect");
    for (int round = 0; round < ROUND_TRIPS; round++) exchange(fd, 8);
    return fd;
}

// Counts the streams in shared memory and the memory of their rings that this process has touched.
static long resident_kib(int *streams) {
    char line[512];
    long total = 0, value;
    int is_stream = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    *streams = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '-') && strstr(line, " rw")) *streams += is_stream = strstr(line, "/memfd:ddss-stream (deleted)") != NULL;
        if (is_stream && sscanf(line, "Rss: %ld", &value) == 1) total += value;
    }
    if (maps) fclose(maps);
    return total;
}

int main(int count, char **arguments) {
    if (count == 2) serve();
    int streams, wanted = atoi(arguments[3]);
    for (int i = 0; i < wanted; i++) sockets[i] = connect_to(arguments[2]);
    if (!strcmp(arguments[1], "crowd")) {
        for (int i = 0; i < wanted; i++) exchange(sockets[i], 8);
        resident_kib(&streams);
        printf("RESULT served=%d shared=%d\n", wanted, streams);
        return 0;
    }
    for (int i = 0; i < wanted; i++)
        for (int j = 0; j < BLOCKS; j++) exchange(sockets[i], BLOCK);
    long filled = resident_kib(&streams), left = filled;
    struct timeval timeout = {.tv_usec = 300000};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    // The thread only waits; the server does the same.
    for (int i = 0; i < LOOKS && left > streams * 32L; i++) {
        recv(sockets[0], block, 1, 0);
        left = resident_kib(&streams);
    }
    for (int i = 0; i < wanted; i++) exchange(sockets[i], BLOCK);
    printf("RESULT shared=%d filled=%ld left=%ld\n", streams, filled / streams, left / streams);
    return 0;
}
