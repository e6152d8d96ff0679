// Descriptors and memory of many streams: costs serve | costs crowd PORT COUNT | costs fill PORT COUNT
#define PROGRAM "costs"
#include "program.h"

enum { COUNT_MAX = 1024, BLOCK = 100000, BLOCKS = 4, LOOKS = 100 };
static int sockets[COUNT_MAX];
static char block[BLOCK];

static void serve(void) {
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    int listener = listen_and_say(), set = epoll_create1(0);
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

static int connect_closed_on_exec(const char *port) {
    int fd = connect_to_port(port);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC)) fail("FD_CLOEXEC");
    make_trips(fd);
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
    for (int i = 0; i < wanted; i++) sockets[i] = connect_closed_on_exec(arguments[2]);
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
