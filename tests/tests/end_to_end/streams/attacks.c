// A program with hostile and honest parts: attacks PART ...
//
// The hostile part runs under the library as its victim does, and then stores what it wants in the memory that both map, and changes the
// descriptors that the library gave it. It knows the names of memory and descriptors, and nothing of their layout.
#define PROGRAM "attacks"
#include "program.h"

#include <pthread.h>

enum { WORDS = 96, LOCKED_WORDS = 72, PAGE = 4096, FIRST_FILE = 20, LAST_FILE = 60, SCRIBBLERS = 6, CLIENTS = 4096 };

// Returns the pages of cursors that this program has mapped; the last one is that of the last stream.
static int pages(char *found[CLIENTS]) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:ddss-stream (deleted)")) found[count++] = (char *)strtoull(line, NULL, 16);
    if (maps) fclose(maps);
    return count;
}

// Returns a connection that left TCP, and its page. While free ports are found slowly, the library leaves connections on TCP.
static int shared_connection(const char *port, char **page) {
    static char *before[CLIENTS], *after[CLIENTS];
    for (int tries = 0; tries < CLIENTS; tries++) {
        int old = pages(before), fd = connect_to_port(port);
        make_trips(fd);
        int now = pages(after);
        for (int i = 0; i < now; i++) {
            int is_new = 1;
            for (int j = 0; j < old; j++) is_new &= after[i] != before[j];
            if (is_new) *page = after[i];
        }
        if (now > old) return fd;
        close(fd);
    }
    fail("every stream stayed on TCP");
    return -1;
}

static uint64_t live_owner(void) {
    char text[512] = "";
    unsigned long long start = 0;
    FILE *stat = fopen("/proc/self/stat", "r");
    if (!stat || !fgets(text, sizeof text, stat)) fail("stat");
    sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start);
    fclose(stat);
    return (uint64_t)(uint32_t)start << 32 | (uint32_t)getpid();
}

// Makes calls on every descriptor that the library hides wait, and fills those that count.
static void block_descriptors(void) {
    uint64_t most = ~(uint64_t)1;
    for (int fd = 3; fd < 65536; fd++) {
        char path[64], link[128] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, link, sizeof link - 1) < 0) continue;
        int is_bell = !strcmp(link, "anon_inode:[eventfd]");
        if (is_bell) syscall(SYS_write, fd, &most, sizeof most);
        struct sockaddr name;
        socklen_t length = sizeof name;
        int is_control = !syscall(SYS_getsockname, fd, &name, &length) && name.sa_family == AF_UNIX;
        if (is_bell || is_control) syscall(SYS_fcntl, fd, F_SETFL, 0);
    }
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

struct target {
    char *page;
    uint64_t seed;
};

// Stores random and chosen values for ever, in every word behind the first: that says which memory it is.
static void *scribble(void *argument) {
    struct target *target = argument;
    uint64_t owner = live_owner();
    for (;;) {
        uint64_t random = next_random(&target->seed);
        uint64_t values[] = {0, 1, ~0ull, random, random & 0xffff, owner, FIRST_FILE + 1, (FIRST_FILE + 1) * 0x100000001ull};
        volatile uint64_t *words = (void *)target->page;
        for (int word = 1; word < WORDS; word++)
            if (next_random(&target->seed) % 3 == 0) words[word] = values[next_random(&target->seed) % 8];
    }
}

// Keeps connections with one changed word each, and others that change all the time. It stays until it is killed.
static void attack_server(const char *port) {
    static struct target targets[SCRIBBLERS];
    pthread_t thread;
    uint64_t owner = live_owner();
    signal(SIGPIPE, SIG_IGN);
    for (int word = 1; word < LOCKED_WORDS; word++) {
        char *page;
        int fd = shared_connection(port, &page);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (write(fd, "12345678", 8) != 8) fail("write");
        ((volatile uint64_t *)page)[word] = owner;
    }
    block_descriptors();
    for (int i = 0; i < SCRIBBLERS; i++) {
        int fd = shared_connection(port, &targets[i].page);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        targets[i].seed = 88172645463325252ull + i;
        if (pthread_create(&thread, NULL, scribble, &targets[i])) fail("pthread_create");
    }
    printf("READY\n");
    fflush(stdout);
    for (;;) pause();
}

// Replaces descriptor numbers in the page by those of the victim's files. Where it finds none, it stores them everywhere.
static void attack_inherited(const char *port, const char *marker) {
    char *page;
    int fd = shared_connection(port, &page), file = FIRST_FILE, found = 0;
    volatile uint32_t *words = (void *)page;
    for (int at = 2; at < PAGE / 4 - 4; at++) {
        if (words[at] < 3 || words[at + 1] != words[at] + 1 || words[at + 2] != words[at] + 2) continue;
        for (int next = 1; next < 4; next++) words[++at] = ++file;
        found = 1;
    }
    for (int at = 2; !found && at < 2 * WORDS; at++) words[at] = FIRST_FILE + 1 + at % (LAST_FILE - FIRST_FILE);
    close(open(marker, O_CREAT | O_WRONLY, 0600));
    // A peer that sleeps is rung.
    for (;;) recv(fd, &file, 1, 0);
}

static void use_inherited(int fd, const char *path) {
    static char bytes[4096];
    struct stat found;
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < 300; round++) {
        struct pollfd ready = {fd, POLLIN | POLLOUT, 0};
        send(fd, bytes, 8, MSG_DONTWAIT);
        recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        poll(&ready, 1, 0);
    }
    close(fd);
    if (stat(path, &found)) fail("stat");
    printf("RESULT size=%ld\n", (long)found.st_size);
}

static void serve_then_exec(char *self, char *path, char *marker) {
    int listener = listen_and_say(), fd = accept(listener, NULL, NULL);
    answer_trips(fd);
    int file = open(path, O_CREAT | O_RDWR | O_APPEND, 0600);
    for (int number = FIRST_FILE; number < LAST_FILE; number++)
        if (dup2(file, number) < 0) fail("dup2");
    while (access(marker, F_OK)) usleep(1000);
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl(self, self, "use_inherited", number, path, NULL);
    fail("exec");
}

// Answers one client: 0 if it is gone.
static int answer(int fd) {
    char bytes[4096];
    ssize_t found = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (found == 0 || found < 0 && errno != EAGAIN && errno != EINTR) return 0;
    if (found > 0 && send(fd, bytes, found, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN) return 0;
    return 1;
}

static void serve_with_epoll(void) {
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    int listener = listen_and_say(), set = epoll_create1(0);
    event.data.fd = listener;
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
            } else if (!answer(fd))
                close(fd);
        }
    }
}

static void serve_with_poll(void) {
    static struct pollfd list[CLIENTS];
    int count = 1;
    list[0] = (struct pollfd){listen_and_say(), POLLIN, 0};
    for (;;) {
        if (poll(list, count, -1) < 0) fail("poll");
        for (int i = count - 1; i > 0; i--)
            if (list[i].revents && !answer(list[i].fd)) close(list[i].fd), list[i] = list[--count];
        if (list[0].revents && count < CLIENTS) list[count++] = (struct pollfd){accept(list[0].fd, NULL, NULL), POLLIN, 0};
    }
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    if (!strcmp(part, "attack_server")) attack_server(arguments[2]);
    if (!strcmp(part, "attack_inherited")) attack_inherited(arguments[2], arguments[3]);
    if (!strcmp(part, "serve_then_exec")) serve_then_exec(arguments[0], arguments[2], arguments[3]);
    if (!strcmp(part, "use_inherited")) use_inherited(atoi(arguments[2]), arguments[3]);
    if (!strcmp(part, "serve_with_epoll")) serve_with_epoll();
    if (!strcmp(part, "serve_with_poll")) serve_with_poll();
    if (!strcmp(part, "ask")) {
        int fd = connect_to_port(arguments[2]);
        for (long round = 0; round < atol(arguments[3]); round++) trip(fd, round);
        printf("RESULT done\n");
    }
    return 0;
}
