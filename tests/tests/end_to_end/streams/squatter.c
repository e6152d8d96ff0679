// A user who takes the name by which two ends meet, and the two ends: squatter PART ...
#define PROGRAM "squatter"
#include "program.h"

#include <stddef.h>
#include <sys/un.h>

enum { LIMIT_S = 40, BYTES = 100000 };
static char bytes[BYTES];

static void say(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

// Takes what the other end sends, and says how many bytes and descriptors that is.
static void take(int fd) {
    char control[CMSG_SPACE(16 * sizeof(int))];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t found = recvmsg(fd, &message, 0);
    printf("RESULT bytes=%zd descriptors=%d\n", found < 0 ? 0 : found, found > 0 && CMSG_FIRSTHDR(&message) != NULL);
}

static void squat(const char *name, int is_listener) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(address.sun_path + 1, name);
    if (is_listener) {
        CHECK(!bind(fd, (void *)&address, length) && !listen(fd, 5));
        say("READY");
        CHECK((fd = accept(fd, NULL, NULL)) >= 0);
    } else {
        while (connect(fd, (void *)&address, length)) usleep(1000);
        say("READY");
    }
    take(fd);
}

static void use(int fd) {
    printf("RESULT shared=%d", shared_streams());
    put(fd, bytes, BYTES);
    CHECK(!shutdown(fd, SHUT_WR));
    get(fd, bytes, BYTES);
    CHECK(read(fd, bytes, 1) == 0);
    printf(" done\n");
}

int main(int count, char **arguments) {
    const char *part = arguments[1];
    struct sockaddr_in name, own;
    alarm(LIMIT_S);
    if (!strcmp(part, "listen") || !strcmp(part, "connect")) squat(arguments[2], *part == 'l');
    if (!strcmp(part, "server")) {
        int listener = listen_on(&name), fd;
        printf("PORT %d\n", ntohs(name.sin_port));
        fflush(stdout);
        // The connection is there before this end calls the other one.
        get(0, bytes, 1);
        CHECK((fd = accept(listener, NULL, NULL)) >= 0);
        answer_trips(fd);
        use(fd);
    }
    if (!strcmp(part, "client")) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        name = own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        name.sin_port = htons(atoi(arguments[2])), own.sin_port = htons(atoi(arguments[3]));
        CHECK(!bind(fd, (void *)&own, sizeof own) && !connect(fd, (void *)&name, sizeof name));
        say("READY");
        make_trips(fd);
        use(fd);
    }
    return 0;
}
