// Answers requests over TCP inside one process, by epoll: instructions ROUNDS. A round has two waits, two reads, two writes.
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[2] = {socket(AF_INET, SOCK_STREAM, 0)}, set = epoll_create1(0);
    if (count != 2 || bind(listener, (void *)&name, length) || listen(listener, 1)) return 1;
    if (getsockname(listener, (void *)&name, &length) || connect(ends[0], (void *)&name, length)) return 1;
    if ((ends[1] = accept(listener, NULL, NULL)) < 0) return 1;
    for (int end = 0; end < 2; end++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[end]};
        if (epoll_ctl(set, EPOLL_CTL_ADD, ends[end], &event)) return 1;
    }
    for (int round = 0; round < 2 * atoi(arguments[1]); round++) {
        char bytes[64] = {0};
        struct epoll_event event;
        if (write(ends[round % 2], bytes, sizeof bytes) != sizeof bytes) return 1;
        if (epoll_wait(set, &event, 1, -1) != 1 || event.data.fd != ends[(round + 1) % 2]) return 1;
        if (read(event.data.fd, bytes, sizeof bytes) != sizeof bytes) return 1;
    }
    return 0;
}
