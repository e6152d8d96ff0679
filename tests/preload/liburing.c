// Answers words by libc, then by a ring of its own copy of liburing: liburing ROUNDS. Its client is a child.
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORD = 8, BY_LIBC = 8 };

static int moved(struct io_uring *ring) {
    struct io_uring_cqe *done;
    if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_wait_cqe(ring, &done)) return -1;
    int result = done->res;
    io_uring_cqe_seen(ring, done);
    return result;
}

int main(int count, char **arguments) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    struct io_uring ring;
    char word[WORD], sent[WORD];
    int rounds = count > 1 ? atoi(arguments[1]) : 1000, listener = socket(AF_INET, SOCK_STREAM, 0), status;
    alarm(60);
    if (bind(listener, (void *)&name, length) || listen(listener, 1) || getsockname(listener, (void *)&name, &length)) return 1;
    pid_t child = fork();
    if (!child) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&name, length)) _exit(1);
        for (int round = 0; round < rounds; round++) {
            memset(sent, round, WORD);
            if (send(fd, sent, WORD, 0) != WORD || recv(fd, word, WORD, MSG_WAITALL) != WORD || memcmp(sent, word, WORD)) _exit(1);
        }
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL), has_ring = !io_uring_queue_init(8, &ring, 0);
    for (int round = 0; round < rounds; round++) {
        if (round < BY_LIBC || !has_ring) {
            if (recv(fd, word, WORD, MSG_WAITALL) != WORD || send(fd, word, WORD, 0) != WORD) return 1;
            continue;
        }
        io_uring_prep_recv(io_uring_get_sqe(&ring), fd, word, WORD, MSG_WAITALL);
        if (moved(&ring) != WORD) return 1;
        io_uring_prep_send(io_uring_get_sqe(&ring), fd, word, WORD, 0);
        if (moved(&ring) != WORD) return 1;
    }
    if (waitpid(child, &status, 0) != child || status) return 1;
    printf("%d round trips, %s\n", rounds, has_ring ? "by a ring" : "without a ring: this system forbids it");
    return 0;
}
