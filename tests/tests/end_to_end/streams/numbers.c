// A program whose calls reach the kernel by other ways than libc's usual names: numbers PART
//
// Both ends of its stream are its own. With RAW it has instructions that enter the kernel by themselves, with SMALL those of a
// program that was compiled for size, with RING one that makes a ring.
#define PROGRAM "numbers"
#include "program.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/select.h>

enum { WORD = 8 };
static const char FILE_BYTES[] = "these bytes belong to the file";
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
extern int __close(int), __fcntl(int, int, ...), __dup2(int, int), __poll(struct pollfd *, nfds_t, int);
extern int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);

static void move(int from, int to) {
    uint64_t word = 1;
    CHECK(write(from, &word, WORD) == WORD && recv(to, &word, WORD, MSG_WAITALL) == WORD);
}

static void both_ways(int ends[2]) {
    move(ends[0], ends[1]), move(ends[1], ends[0]);
}

// Connects two descriptors of this process.
static void connect_new(int ends[2]) {
    struct sockaddr_in name;
    int listener = listen_on(&name);
    ends[0] = connect_to(&name);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
    close(listener);
}

// Makes both use shared memory afterwards.
static void connect_pair(int ends[2]) {
    connect_new(ends);
    for (int round = 0; round < ROUND_TRIPS; round++) both_ways(ends);
}

#if defined RAW || defined RING
#ifdef __x86_64__
#define ENTER(number, a, b, c, d) ({ \
    long result; \
    register long fourth __asm__("r10") = (long)(d); \
    __asm__ volatile("mov %1, %%eax\n\tsyscall" : "=&a"(result) : "i"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory"); \
    result; })
#else
#define ENTER(number, a, b, c, d) ({ \
    register long first __asm__("x0") = (long)(a), second __asm__("x1") = (long)(b), third __asm__("x2") = (long)(c); \
    register long fourth __asm__("x3") = (long)(d), call __asm__("x8"); \
    __asm__ volatile("mov x8, %1\n\tsvc #0" : "+r"(first) : "i"(number), "r"(second), "r"(third), "r"(fourth) : "x8", "memory"); \
    (void)call, first; })
#endif
#endif

// Closes a descriptor as a program that was compiled for size.
static void close_small(int fd, int is_pushed) {
#if defined SMALL && defined __x86_64__
    long result = 0;
    if (is_pushed)
        __asm__ volatile("push $3\n\tpop %%rax\n\tsyscall" : "=&a"(result) : "D"(fd) : "rcx", "r11", "memory");
    else
        __asm__ volatile("xor %%eax, %%eax\n\tmov $3, %%al\n\tsyscall" : "=&a"(result) : "D"(fd) : "rcx", "r11", "memory");
    CHECK(!result);
#else
    CHECK(!close(fd));
#endif
}

// Closes a descriptor past `close`, and gives its number to the file.
static void replace_by(int way, int fd, const char *path) {
    int file = open(path, O_RDWR);
    switch (way) {
        case 0: CHECK(!syscall(SYS_close, fd)); break;
        case 1: CHECK(!__close(fd)); break;
        case 2: CHECK(!syscall(SYS_close_range, fd, fd, 0)); break;
        case 3: CHECK(syscall(SYS_dup3, file, fd, O_CLOEXEC) == fd); return;
        case 4: CHECK(__dup2(file, fd) == fd); return;
#ifdef SYS_dup2
        case 5: CHECK(syscall(SYS_dup2, file, fd) == fd); return;
#endif
#ifdef RAW
        case 6: CHECK(!ENTER(SYS_close, fd, 0, 0, 0)); break;
        case 7: CHECK(ENTER(SYS_dup3, file, fd, O_CLOEXEC, 0) == fd); return;
        case 8: CHECK(!ENTER(SYS_close_range, fd, fd, 0, 0)); break;
#endif
        case 9: case 10: close_small(fd, way == 9); break;
    }
    // Others may be free below it.
    do CHECK((file = open(path, O_RDWR)) >= 0 && file <= fd);
    while (file < fd);
}

// Gives the number of a stream to a file: the file gets the bytes that are written to it, and the peer none.
static void reuse(int way) {
    char path[] = "/tmp/ddss-numbers-XXXXXX", bytes[100];
    int file = mkstemp(path), ends[2];
    struct stat found;
    CHECK(file >= 0 && !close(file));
    connect_pair(ends);
    CHECK(shared_streams());
    int number = ends[way % 2], peer = ends[1 - way % 2];
    move(number, peer);
    CHECK(write(peer, "of the peer", 11) == 11);
    replace_by(way, number, path);
    CHECK(write(number, FILE_BYTES, sizeof FILE_BYTES) == sizeof FILE_BYTES);
    CHECK(!stat(path, &found) && found.st_size == sizeof FILE_BYTES && !lseek(number, 0, SEEK_SET));
    CHECK(read(number, bytes, sizeof bytes) == sizeof FILE_BYTES && !memcmp(bytes, FILE_BYTES, sizeof FILE_BYTES));
    CHECK(read(peer, bytes, sizeof bytes) <= 0);
    CHECK(!unlink(path) && !close(number) && !close(peer));
}

// Moves a word through the stream by each call that carries bytes.
static void move_by_syscall(int ends[2]) {
    char sent[WORD], got[WORD];
    struct iovec out = {sent, WORD}, in = {got, WORD};
    struct msghdr give = {.msg_iov = &out, .msg_iovlen = 1}, take = {.msg_iov = &in, .msg_iovlen = 1};
    struct mmsghdr give_many = {give}, take_many = {take};
    int from = ends[0], to = ends[1], round = 0;
    // One end uses a usual call.
#define GIVE(call) \
    do { \
        memset(sent, ++round, WORD), memset(got, 0, WORD); \
        CHECK((call) > 0 && recv(to, got, WORD, MSG_WAITALL) == WORD && !memcmp(sent, got, WORD)); \
    } while (0)
#define TAKE(call) \
    do { \
        memset(sent, ++round, WORD), memset(got, 0, WORD); \
        CHECK(send(from, sent, WORD, 0) == WORD && (call) > 0 && !memcmp(sent, got, WORD)); \
    } while (0)
    for (int turn = 0; turn < 2; turn++, from = ends[1], to = ends[0]) {
        GIVE(syscall(SYS_write, from, sent, WORD));
        GIVE(syscall(SYS_writev, from, &out, 1));
        GIVE(syscall(SYS_sendto, from, sent, WORD, 0, NULL, 0));
        GIVE(syscall(SYS_sendmsg, from, &give, 0));
        GIVE(syscall(SYS_sendmmsg, from, &give_many, 1, 0));
        GIVE(syscall(SYS_pwritev2, from, &out, 1, -1L, -1L, 0));
        GIVE(pwritev2(from, &out, 1, -1, 0));
        GIVE(__write(from, sent, WORD));
        GIVE(__send(from, sent, WORD, 0));
        TAKE(syscall(SYS_read, to, got, WORD));
        TAKE(syscall(SYS_readv, to, &in, 1));
        TAKE(syscall(SYS_recvfrom, to, got, WORD, 0, NULL, NULL));
        TAKE(syscall(SYS_recvmsg, to, &take, 0));
        TAKE(syscall(SYS_recvmmsg, to, &take_many, 1, 0, NULL));
        TAKE(syscall(SYS_preadv2, to, &in, 1, -1L, -1L, 0));
        TAKE(preadv2(to, &in, 1, -1, 0));
        TAKE(__read(to, got, WORD));
        CHECK(syscall(SYS_preadv2, to, &in, 1, 0L, 0L, 0) == -1 && errno == ESPIPE);
        CHECK(syscall(SYS_preadv2, to, &in, 1, -1L, -1L, RWF_NOWAIT) == -1 && errno == EAGAIN);
    }
}

// Waits for a word, and copies descriptors.
static void wait_by_syscall(int ends[2]) {
    char word[WORD] = {1};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    struct timespec second = {1, 0};
    struct timeval also = {1, 0};
    uint64_t mask = 0;
    struct { const void *mask; size_t bytes; } masked = {&mask, sizeof mask};
    int set = syscall(SYS_epoll_create1, 0), copies[3], count = 0;
    fd_set in;
    CHECK(set >= 0 && !syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, ends[1], &event));
#define WAIT(call) \
    do { \
        struct pollfd list = {ends[1], POLLIN, 0}; \
        FD_ZERO(&in); \
        FD_SET(ends[1], &in); \
        (void)list, event.data.u64 = 0; \
        CHECK(write(ends[0], word, WORD) == WORD); \
        CHECK((call) == 1 && read(ends[1], word, WORD) == WORD); \
    } while (0)
    WAIT(syscall(SYS_epoll_pwait, set, &event, 1, 1000, NULL, 8));
    CHECK(event.data.u64 == 77);
#ifdef SYS_epoll_wait
    WAIT(syscall(SYS_epoll_wait, set, &event, 1, 1000));
    WAIT(syscall(SYS_poll, &list, 1, 1000));
    WAIT(syscall(SYS_select, ends[1] + 1, &in, NULL, NULL, &also));
#endif
    WAIT(syscall(SYS_epoll_pwait2, set, &event, 1, &second, NULL, 8));
    WAIT(syscall(SYS_ppoll, &list, 1, &second, &mask, sizeof mask));
    WAIT(syscall(SYS_pselect6, ends[1] + 1, &in, NULL, NULL, &second, &masked));
    WAIT(__poll(&list, 1, 1000));
    also.tv_sec = 1;
    WAIT(__select(ends[1] + 1, &in, NULL, NULL, &also));
    WAIT(!syscall(SYS_ioctl, ends[1], FIONREAD, &count) && count == WORD);
    copies[0] = syscall(SYS_dup, ends[0]);
    copies[1] = syscall(SYS_fcntl, ends[0], F_DUPFD_CLOEXEC, 100);
    copies[2] = syscall(SYS_dup3, ends[0], 200, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(copies[i] >= 0);
        move(copies[i], ends[1]), move(ends[1], copies[i]);
        CHECK(!syscall(SYS_close, copies[i]));
    }
    move(ends[0], ends[1]);
    CHECK(!close(set));
}

static int close_and_leave(void *ends) {
    close(*(int *)ends);
    _exit(0);
}

static pid_t child_by(int way, int ends[2]) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    pid_t child = -1;
    switch (way) {
        case 0: child = _Fork(); break;
        case 1: child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0); break;
        case 2: return clone(close_and_leave, stack + sizeof stack, SIGCHLD, ends);
        case 3: return clone(close_and_leave, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, ends);
        case 4: {
            uint64_t arguments[11] = {0, 0, 0, 0, SIGCHLD};
            child = syscall(SYS_clone3, arguments, sizeof arguments);
            break;
        }
#ifdef SYS_fork
        case 5: child = syscall(SYS_fork); break;
#endif
#ifdef RAW
        case 6: child = ENTER(SYS_clone, (long)SIGCHLD, 0, 0, 0); break;
#endif
        default: child = fork();
    }
    if (!child) close_and_leave(ends);
    return child;
}

// Makes a child that closes an end: the parent's stream goes on.
static void share_with_child(int way) {
    int ends[2], status;
    connect_pair(ends);
    CHECK(shared_streams());
    pid_t child = child_by(way, ends);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    for (int round = 0; round < ROUND_TRIPS; round++) both_ways(ends);
    char byte;
    CHECK(!close(ends[0]) && read(ends[1], &byte, 1) == 0);
    CHECK(write(ends[1], &byte, 1) == 1 && send(ends[1], &byte, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    CHECK(!close(ends[1]));
}

#ifdef RAW
// Makes a child past the library, and closes its end first: the child serves it, while the parent uses others.
static void leave_to_child(int is_new) {
    int ends[2], others[2], status;
    char word[WORD], byte;
    if (is_new) {
        connect_new(ends);
    } else {
        connect_pair(ends);
        CHECK(shared_streams());
    }
    pid_t child = ENTER(SYS_clone, (long)SIGCHLD, 0, 0, 0);
    if (!child) {
        close(ends[1]);
        while (recv(ends[0], word, WORD, MSG_WAITALL) == WORD) CHECK(send(ends[0], word, WORD, MSG_NOSIGNAL) == WORD);
        close(ends[0]);
        _exit(0);
    }
    CHECK(child > 0 && !close(ends[0]));
    for (int round = 0; round < 4; round++) {
        connect_pair(others);
        for (int i = 0; i < 100; i++) {
            memset(word, i, WORD);
            CHECK(write(ends[1], word, WORD) == WORD && recv(ends[1], &byte, 1, 0) == 1 && byte == i);
            CHECK(recv(ends[1], word, WORD - 1, MSG_WAITALL) == WORD - 1);
            both_ways(others);
        }
        if (round % 2) close(others[0]), close(others[1]);
    }
    CHECK(!shutdown(ends[1], SHUT_WR) && read(ends[1], &byte, 1) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Closes the library's own descriptors past it, above the limit or below: both ends learn of it, and files that get their numbers no byte.
static void close_hidden(int is_below) {
    char path[] = "/tmp/ddss-numbers-XXXXXX", word[WORD];
    struct rlimit limit;
    struct pollfd entry;
    struct stat found;
    int ends[2], file = mkstemp(path), first = is_below ? 256 : 512, last = is_below ? 511 : 65535;
    CHECK(file >= 0 && !unlink(path) && !getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 512;
    if (is_below) limit.rlim_max = 512;
    CHECK(limit.rlim_max > 512 || is_below);
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    connect_pair(ends);
    CHECK(shared_streams());
    CHECK(!ENTER(SYS_close_range, first, last, 0, 0));
    for (int number = first; is_below && number < last; number++) CHECK(dup2(file, number) == number);
    entry = (struct pollfd){ends[1], POLLIN, 0};
    for (int round = 0; round < 3; round++) write(ends[round % 2], word, WORD);
    CHECK(poll(&entry, 1, -1) == 1);
    while (write(ends[0], word, WORD) == WORD) continue;
    while (recv(ends[1], word, WORD, 0) > 0) continue;
    while (recv(ends[0], word, WORD, 0) > 0) continue;
    CHECK(!close(ends[0]) && !close(ends[1]));
    CHECK(!fstat(file, &found) && found.st_size == 0 && !lseek(file, 0, SEEK_CUR));
    for (int number = first; is_below && number < last; number++) CHECK(!close(number));
}

static void *sleep_in_set(void *set) {
    struct epoll_event event;
    CHECK(epoll_wait(*(int *)set, &event, 1, -1) == 1);
    return NULL;
}

// The same beside a thread that only waits in a set, for bytes or for space: it hears of the end.
static void close_hidden_beside_set(int for_space) {
    static char block[1 << 20];
    struct epoll_event event = {.events = for_space ? EPOLLOUT | EPOLLET : EPOLLIN};
    struct rlimit limit;
    pthread_t sleeper;
    int fd, set = epoll_create1(0);
    make_pipes();
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_max > 512);
    limit.rlim_cur = 512;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    pid_t child = make_pair(&fd);
    if (!child) {
        hear(to_child[0]);
        while (for_space && recv(fd, block, sizeof block, MSG_DONTWAIT) > 0) continue;
        write(fd, "12345678", WORD);
        hear(to_child[0]);
        _exit(0);
    }
    CHECK(set >= 0 && !fcntl(fd, F_SETFL, O_NONBLOCK) && !epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    if (for_space) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        while (write(fd, block, sizeof block) > 0) continue;
    }
    CHECK(!pthread_create(&sleeper, NULL, sleep_in_set, &set));
    usleep(100000);
    CHECK(!ENTER(SYS_close_range, 512, 65535, 0, 0));
    tell(to_child[1]);
    CHECK(!pthread_join(sleeper, NULL) && !fcntl(fd, F_SETFL, 0));
    // What came before is read. The end is no clean one.
    ssize_t found;
    while ((found = read(fd, block, sizeof block)) > 0) continue;
    CHECK(found < 0 && errno == ECONNRESET);
    tell(to_child[1]);
    CHECK(waitpid(child, NULL, 0) == child);
}
#endif

static volatile int is_over;

static void *make_streams(void *unused) {
    for (int ends[2]; !is_over; close(ends[0]), close(ends[1])) {
        connect_new(ends);
        CHECK(!fcntl(ends[0], F_SETFD, FD_CLOEXEC) && !fcntl(ends[1], F_SETFD, FD_CLOEXEC));
        for (int round = 0; round < ROUND_TRIPS; round++) both_ways(ends);
    }
    return unused;
}

// Starts an image that inherits a stream and does not know it: it gets none of its bytes, and its end is not that of the stream.
static void leak_to_image(const char *self) {
    char *list[] = {(char *)self, "wait", NULL}, *none[] = {NULL}, byte;
    int ends[2], talk[2], status;
    pid_t child;
    connect_pair(ends);
    CHECK(shared_streams() && !pipe(talk) && dup2(talk[0], 20) == 20 && !fcntl(talk[1], F_SETFD, FD_CLOEXEC));
    CHECK(!posix_spawn(&child, self, NULL, NULL, list, none));
    for (int round = 0; round < 200; round++) both_ways(ends), usleep(1000);
    CHECK(write(talk[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    usleep(100000);
    for (int round = 0; round < 200; round++) both_ways(ends);
    CHECK(!close(ends[0]) && read(ends[1], &byte, 1) == 0);
}

// A process that ends without a close leaves a stream to an image that does not know the library, at another descriptor than the first three.
static void exit_beside_image(const char *self) {
    char *list[] = {(char *)self, "echo", NULL}, *none[] = {NULL}, word[WORD] = "1234567";
    int ends[2];
    connect_pair(ends);
    CHECK(shared_streams());
    if (!fork()) {
        CHECK(!close(ends[1]) && dup2(ends[0], 30) == 30 && !close(ends[0]));
        if (!fork()) execve(self, list, none);
        usleep(100000);
        _exit(0);
    }
    CHECK(!close(ends[0]));
    for (int round = 0; round < 20; round++)
        CHECK(write(ends[1], word, WORD) == WORD && recv(ends[1], word, WORD, MSG_WAITALL) == WORD);
    CHECK(!shutdown(ends[1], SHUT_WR) && recv(ends[1], word, WORD, 0) == 0);
}

// Starts images while another thread hides descriptors: each has the limit that the program has.
static void spawn_beside_streams(const char *self) {
    struct rlimit limit;
    pthread_t thread;
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_max > 512);
    limit.rlim_cur = 512;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit) && !pthread_create(&thread, NULL, make_streams, NULL));
    for (int round = 0; round < 400; round++) {
        char *list[] = {(char *)self, "limit", NULL}, *none[] = {NULL};
        pid_t child;
        int status;
        CHECK(!posix_spawn(&child, self, NULL, NULL, list, none));
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    is_over = 1;
    pthread_join(thread, NULL);
}

// Starts an image with one end of a stream; a child echoes at the other.
static void exec_with_stream(const char *image) {
    int ends[2];
    char number[12], word[WORD];
    connect_pair(ends);
    CHECK(shared_streams());
    if (!fork()) {
        close(ends[0]);
        while (recv(ends[1], word, WORD, MSG_WAITALL) == WORD && send(ends[1], word, WORD, MSG_NOSIGNAL) == WORD) continue;
        _exit(0);
    }
    sprintf(number, "%d", ends[0]);
    CHECK(!close(ends[1]) && !execl(image, image, "resume", number, NULL));
}

static int hold(struct dl_phdr_info *object, size_t bytes, void *ready) {
    (void)object, (void)bytes;
    *(volatile int *)ready = 1;
    sleep(20);
    return 1;
}

static void *hold_loader(void *ready) {
    dl_iterate_phdr(hold, ready);
    return NULL;
}

// Forks while another thread holds the loader's lock, which the child finds held for ever.
static void connect_in_child(void) {
    static volatile int is_held;
    int ends[2], status;
    pthread_t holder;
    connect_pair(ends);
    CHECK(!pthread_create(&holder, NULL, hold_loader, (void *)&is_held));
    while (!is_held) usleep(1000);
    pid_t child = fork();
    if (!child) {
        alarm(10);
        connect_pair(ends);
        _exit(!shared_streams());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

#ifdef RING
// Makes a ring as a static liburing does, and reads as a request of the ring would.
static void ring(void) {
    char parameters[120] = {0}, word[WORD];
    int ends[2];
    long created = ENTER(SYS_io_uring_setup, 4, parameters, 0, 0);
    connect_pair(ends);
    CHECK(write(ends[0], "12345678", WORD) == WORD);
    CHECK(ENTER(SYS_read, ends[1], word, WORD, 0) == WORD && !memcmp(word, "12345678", WORD));
    printf("ring %s shared=%d\n", created < 0 ? "refused" : "made", shared_streams());
}

// Asks for echoes as requests of a ring would, on a stream of an earlier image.
static void resume(int fd) {
    char sent[WORD], got[WORD];
    for (int round = 0; round < ROUND_TRIPS; round++) {
        memset(sent, round, WORD);
        CHECK(ENTER(SYS_write, fd, sent, WORD, 0) == WORD && ENTER(SYS_read, fd, got, WORD, 0) == WORD && !memcmp(sent, got, WORD));
    }
}
#endif

// Protects code of a library before the first connection: nothing is known of it, so that the stream stays on TCP.
static void connect_with_protected_code(int ends[2]) {
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    uintptr_t code = library ? (uintptr_t)dlsym(library, "ldexp") & -(uintptr_t)getpagesize() : 0;
    CHECK(code && !mprotect((void *)code, getpagesize(), PROT_NONE));
    connect_pair(ends);
    CHECK(!shared_streams());
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    int ends[2], way = count > 2 ? atoi(arguments[2]) : 0;
    alarm(30);
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(part, "limit")) {
        struct rlimit limit;
        return getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur != 512;
    }
    if (!strcmp(part, "wait")) return read(20, ends, 1) != 1;
    if (!strcmp(part, "echo")) {
        char word[WORD];
        for (ssize_t found; (found = read(30, word, WORD)) > 0;) CHECK(write(30, word, found) == found);
        return 0;
    }
    if (!strcmp(part, "exit")) exit_beside_image(arguments[0]);
    if (!strcmp(part, "leak")) leak_to_image(arguments[0]);
    if (!strcmp(part, "spawn")) spawn_beside_streams(arguments[0]);
#ifdef RAW
    if (!strcmp(part, "leave")) leave_to_child(way);
    if (!strcmp(part, "close_hidden")) close_hidden(way);
    if (!strcmp(part, "close_hidden_beside_set")) close_hidden_beside_set(way);
#endif
    if (!strcmp(part, "reuse")) reuse(way);
    if (!strcmp(part, "child")) share_with_child(way);
    if (!strcmp(part, "calls")) {
        connect_pair(ends);
        CHECK(shared_streams());
        move_by_syscall(ends);
        wait_by_syscall(ends);
    }
    if (!strcmp(part, "protected")) connect_with_protected_code(ends);
    if (!strcmp(part, "connect_in_child")) connect_in_child();
    if (!strcmp(part, "exec")) exec_with_stream(arguments[3]);
#ifdef RING
    if (!strcmp(part, "ring")) ring();
    if (!strcmp(part, "resume")) resume(way);
#endif
    return 0;
}
