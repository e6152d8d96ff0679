// A program that waits in ways that few programs do: waits PART
//
// A child echoes every connection. The program ends with 0 if every byte was right, before its alarm.
#define PROGRAM "waits"
#include "program.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <time.h>

enum { FORKS = 100, INTERRUPTS = 2000, LIMIT_S = 50, WAIT_MS = 10000, LATE = 0x55, MUCH_MEMORY = 96 << 20 };
static struct sockaddr_in name;
static volatile sig_atomic_t is_over;

static void *echo(void *descriptor) {
    char bytes[4096];
    int fd = (int)(intptr_t)descriptor;
    ssize_t found;
    while ((found = read(fd, bytes, sizeof bytes)) > 0) {
        if (found == 8 && bytes[7] == LATE) usleep(2000);
        if (write(fd, bytes, found) != found) break;
    }
    close(fd);
    return NULL;
}

static pid_t serve(void) {
    int listener = listen_on(&name), fd;
    pid_t server = fork();
    if (server) {
        close(listener);
        return server;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, echo, (void *)(intptr_t)fd)) fail("pthread_create");
        pthread_detach(thread);
    }
    fail("accept");
    return 0;
}

static int dial(void) {
    int fd = connect_to(&name);
    make_trips(fd);
    return fd;
}

// Changes an interest as fast as it can, and now and then waits for an answer.
static void *change_interest(void *unused) {
    int set = epoll_create1(0), fd = dial();
    struct epoll_event event = {.events = EPOLLIN};
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    for (uint64_t round = 0; !is_over; round++) {
        event.events = round % 2 ? EPOLLIN : EPOLLIN | EPOLLOUT;
        if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) fail("epoll_ctl");
        if (round % 64) continue;
        event.events = EPOLLIN;
        if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) fail("epoll_ctl");
        put(fd, &round, sizeof round);
        uint64_t answer;
        if (epoll_wait(set, &event, 1, -1) != 1) fail("epoll_wait");
        get(fd, &answer, sizeof answer);
        if (answer != round) fail("a wrong answer");
    }
    close(fd), close(set);
    return unused;
}

// Makes a stream as each child is made, under a number that was free just before, and checks that it is its own until its end.
static volatile sig_atomic_t forks;

static void *make_streams(void *unused) {
    for (int seen = 0; !is_over;) {
        if (seen == forks) continue;
        seen = forks;
        // At another moment of each fork.
        for (volatile int spin = seen * 997 % 60000; spin; spin--) continue;
        int fd = dial();
        usleep(2000);
        trip(fd, seen);
        close(fd);
    }
    return unused;
}

// A thread forks in a loop while others use their sets and make streams. Each child connects, and uses the stream that it inherits.
static void fork_beside_threads(void) {
    pthread_t threads[4];
    int inherited = dial();
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, i % 2 ? make_streams : change_interest, NULL)) fail("pthread_create");
    // The kernel copies descriptors first and memory later: much memory below the stacks makes that time long.
    char *memory = mmap(NULL, MUCH_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, MUCH_MEMORY, MADV_NOHUGEPAGE)) fail("mmap");
    memset(memory, 1, MUCH_MEMORY);
    for (int round = 0; round < FORKS; round++) {
        int status;
        forks++;
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (!child) {
            alarm(20);
            trip(inherited, round);
            for (int i = 0; i < 2; i++) dial();
            int fd = dial();
            struct pollfd entry = {fd, POLLOUT, 0};
            if (poll(&entry, 1, -1) != 1 || dup2(fd, inherited) != inherited || close(fd)) fail("poll");
            trip(inherited, round);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "child %d ended with %d\n", round, status);
            exit(1);
        }
        trip(inherited, round);
    }
    is_over = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static int in_handler, both, handlers_ran;
static uint64_t written_by_handler;

static void use_streams(int signal) {
    static char ones[1024];
    int error = errno, fd;
    struct pollfd list[2] = {{in_handler, POLLIN, 0}, {both, POLLOUT, 0}};
    fd_set set;
    struct timeval now = {0, 0};
    FD_ZERO(&set);
    FD_SET(in_handler, &set);
    trip(in_handler, handlers_ran);
    if (poll(list, 2, 0) < 0 || select(in_handler + 1, NULL, &set, NULL, &now) != 1) fail("poll");
    // The interrupted code writes to this stream, too.
    memset(ones, signal == SIGALRM, sizeof ones);
    put(both, ones, sizeof ones);
    written_by_handler += sizeof ones;
    if (handlers_ran++ % 32 == 0) fd = dial(), trip(fd, 9), close(fd);
    if (handlers_ran % 64 == 0 && (fd = fork()) >= 0) {
        if (!fd) alarm(20), trip(fd = dial(), 9), _exit(0);
        int status;
        while (waitpid(fd, &status, 0) < 0 && errno == EINTR) continue;
        if (status) fail("a child of a handler");
    }
    errno = error;
}

static uint64_t bytes_read, ones_read;

static void *count_bytes(void *unused) {
    char bytes[4096];
    ssize_t found;
    while ((found = read(both, bytes, sizeof bytes)) > 0) {
        for (ssize_t i = 0; i < found; i++) {
            if (bytes[i] != 1 && bytes[i] != 2) fail("a wrong byte");
            ones_read += bytes[i] == 1;
        }
        bytes_read += found;
    }
    return unused;
}

// A handler uses streams at a high rate while the program uses its sets, its streams and its memory.
static void use_streams_in_handlers(void) {
    static char twos[1024];
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = use_streams, .sa_flags = SA_RESTART};
    struct epoll_event event = {.events = EPOLLIN}, found[4];
    sigset_t timer;
    pthread_t counter;
    uint64_t written = 0;
    in_handler = dial(), both = dial();
    int own = dial(), set = epoll_create1(0);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, own, &event) || epoll_ctl(set, EPOLL_CTL_ADD, in_handler, &event))
        fail("epoll_ctl");
    memset(twos, 2, sizeof twos);
    sigemptyset(&timer), sigaddset(&timer, SIGALRM);
    if (pthread_sigmask(SIG_BLOCK, &timer, NULL) || pthread_create(&counter, NULL, count_bytes, NULL)) fail("thread");
    if (pthread_sigmask(SIG_UNBLOCK, &timer, NULL) || sigaction(SIGALRM, &action, NULL)) fail("sigaction");
    if (setitimer(ITIMER_REAL, &often, NULL)) fail("setitimer");
    for (uint64_t round = 0; handlers_ran < INTERRUPTS; round++) {
        event.events = round % 2 ? EPOLLIN : EPOLLIN | EPOLLOUT;
        if (epoll_ctl(set, EPOLL_CTL_MOD, in_handler, &event)) fail("epoll_ctl");
        free(malloc(100 + round % 5000));
        if (round % 16 == 0) put(both, twos, sizeof twos), written += sizeof twos;
        if (round % 64) continue;
        put(own, &round, sizeof round);
        if (epoll_wait(set, found, 4, 100) < 0 && errno != EINTR) fail("epoll_wait");
        uint64_t answer;
        get(own, &answer, sizeof answer);
        if (answer != round) fail("a wrong answer");
    }
    if (setitimer(ITIMER_REAL, &never, NULL) || shutdown(both, SHUT_WR)) fail("shutdown");
    pthread_join(counter, NULL);
    if (ones_read != written_by_handler || bytes_read != written + written_by_handler) fail("lost bytes");
}

// Asks for a word that comes when this program sleeps.
static void ask(int fd, uint64_t word) {
    word |= (uint64_t)LATE << 56;
    put(fd, &word, sizeof word);
}

static void answer(int fd, uint64_t word) {
    uint64_t found = 0;
    get(fd, &found, sizeof found);
    if (found != (word | (uint64_t)LATE << 56)) fail("a wrong answer");
}

static int wait_for(int outer, int inner, int kind, int timeout) {
    struct epoll_event event;
    struct pollfd entry = {inner, POLLIN, 0};
    struct timeval time = {timeout / 1000, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(inner, &set);
    if (kind == 0) return epoll_wait(outer, &event, 1, timeout);
    if (kind == 1) return poll(&entry, 1, timeout);
    return select(inner + 1, &set, NULL, NULL, &time);
}

// Waits for a set of streams from outside: in another set, by poll, by select. A stream is there before the first such wait, others come.
static void wait_for_a_set(void) {
    int outer = epoll_create1(0), inner = epoll_create1(0), fd = dial();
    struct epoll_event event = {.events = EPOLLIN}, found;
    for (int kind = 0; kind < 3; kind++) {
        if (epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
        if (kind == 0 && epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event)) fail("epoll_ctl");
        for (int round = 0; round < 100; round++) {
            int ready = 0, looks = 0;
            ask(fd, round);
            while (!ready) {
                if (wait_for(outer, inner, kind, WAIT_MS) != 1) fail("a set with a ready stream is not ready");
                if ((ready = epoll_wait(inner, &found, 1, 0)) < 0) fail("epoll_wait");
            }
            // Ready as long as there are bytes, and no longer.
            for (int look = 0; look < 3; look++)
                if (wait_for(outer, inner, kind, 0) != 1 || epoll_wait(inner, &found, 1, 0) != 1) fail("bytes are left");
            answer(fd, round);
            while (wait_for(outer, inner, kind, 0)) {
                if (epoll_wait(inner, &found, 1, 0) || looks++ > 4) fail("a set without a ready stream is ready");
            }
        }
        close(fd);
        fd = dial();
        event.events |= kind == 0 ? EPOLLRDHUP : 0;
    }
    // An interest that waits for space, and one that reports an edge.
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    if (epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    for (int round = 0; round < 100; round++) {
        ask(fd, round);
        do {
            if (wait_for(outer, inner, round % 3, WAIT_MS) != 1) fail("a set with an edge is not ready");
        } while (epoll_wait(inner, &found, 1, 0) != 1 || !(found.events & EPOLLIN));
        answer(fd, round);
    }
}

// Registers two descriptors of one stream in one set, which another stream keeps busy until both are left to their bell.
static void wait_for_copies(void) {
    for (int kind = 0; kind < 4; kind++) {
        int set = epoll_create1(0), fd = dial(), copy = dup(fd), other = dial();
        struct epoll_event event = {.events = kind & 1 ? EPOLLIN | EPOLLET : EPOLLIN};
        int descriptors[] = {fd, copy, other}, expected = 3;
        for (int i = 0; i < 3; i++) {
            event.data.u64 = i;
            if (epoll_ctl(set, EPOLL_CTL_ADD, descriptors[i], &event)) fail("epoll_ctl");
        }
        for (int round = 0; round < 6; round++) {
            for (int tick = 0; tick < 40; tick++) {
                ask(other, tick);
                if (epoll_wait(set, &event, 1, WAIT_MS) != 1 || event.data.u64 != 2) fail("the other stream");
                answer(other, tick);
            }
            ask(fd, round);
            for (int seen = 0, looks = 0; seen != expected; looks++) {
                if (epoll_wait(set, &event, 1, 2000) != 1 || event.data.u64 > 1 || looks > 1000) fail("a copy is not reported");
                seen |= 1 << event.data.u64;
            }
            answer(copy, round);
            if (round == 1) {
                if (epoll_ctl(set, EPOLL_CTL_DEL, kind & 2 ? copy : fd, NULL)) fail("epoll_ctl");
                expected = kind & 2 ? 1 : 2;
            }
            if (round == 3) {
                event.data.u64 = kind & 2 ? 1 : 0, event.events = EPOLLIN;
                if (epoll_ctl(set, EPOLL_CTL_ADD, kind & 2 ? copy : fd, &event)) fail("epoll_ctl");
                expected = 3;
            }
        }
        close(fd), close(copy), close(other), close(set);
    }
}

static volatile sig_atomic_t restarted, interrupted;

static void count_signal(int signal) {
    if (signal == SIGUSR1) restarted++;
    else interrupted++;
}

static pthread_t reader;

static void *interrupt_reader(void *unused) {
    usleep(30000);
    for (int i = 0; i < 3; i++) pthread_kill(reader, SIGUSR1), usleep(10000);
    pthread_kill(reader, SIGUSR2);
    return unused;
}

// A handler with SA_RESTART does not end a read, although another one without it is installed; with a deadline it does.
static void continue_after_handlers(void) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct timeval limit = {30, 0};
    int fd = dial();
    uint64_t word;
    pthread_t thread;
    if (sigaction(SIGUSR1, &action, NULL)) fail("sigaction");
    action.sa_flags = 0;
    if (sigaction(SIGUSR2, &action, NULL)) fail("sigaction");
    reader = pthread_self();
    for (int round = 0; round < 2; round++) {
        restarted = interrupted = 0;
        if (pthread_create(&thread, NULL, interrupt_reader, NULL)) fail("pthread_create");
        if (read(fd, &word, sizeof word) != -1 || errno != EINTR) fail("read");
        if (round == 0 && (restarted != 3 || interrupted != 1)) fail("the wrong signal ended the read");
        if (round == 1 && restarted != 1) fail("a read with a deadline continued");
        pthread_join(thread, NULL);
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) fail("setsockopt");
    }
    trip(fd, 1);
}

static int blocked_fd, blocked_call;

static void *block(void *unused) {
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd entry = {blocked_fd, POLLIN, 0};
    static char bytes[1 << 22];
    struct iovec part = {bytes, 8};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    fd_set descriptors;
    int set = epoll_create1(0);
    FD_ZERO(&descriptors);
    FD_SET(blocked_fd, &descriptors);
    if (epoll_ctl(set, EPOLL_CTL_ADD, blocked_fd, &event)) fail("epoll_ctl");
    switch (blocked_call) {
        case 0: read(blocked_fd, bytes, 8); break;
        case 1: recv(blocked_fd, bytes, 8, MSG_WAITALL); break;
        case 2: recvmsg(blocked_fd, &message, 0); break;
        case 3: readv(blocked_fd, &part, 1); break;
        case 4: poll(&entry, 1, -1); break;
        case 5: select(blocked_fd + 1, &descriptors, NULL, NULL, NULL); break;
        case 6: epoll_wait(set, &event, 1, -1); break;
        // The echo fills its way back, then stops to read.
        case 7: while (write(blocked_fd, bytes, sizeof bytes) > 0) continue; break;
    }
    fail("a blocked call returned");
    return unused;
}

// Ends threads that are blocked in a call on a stream, with one that may leave TCP and with one that has left it.
static void cancel_blocked_threads(void) {
    for (int is_new = 0; is_new < 2; is_new++)
        for (blocked_call = 0; blocked_call < 8; blocked_call++) {
            pthread_t thread;
            void *result;
            struct timespec end;
            blocked_fd = is_new ? socket(AF_INET, SOCK_STREAM, 0) : dial();
            if (is_new && connect(blocked_fd, (void *)&name, sizeof name)) fail("connect");
            if (pthread_create(&thread, NULL, block, NULL)) fail("pthread_create");
            usleep(50000);
            clock_gettime(CLOCK_REALTIME, &end);
            end.tv_sec += 10;
            if (pthread_cancel(thread)) fail("pthread_cancel");
            errno = blocked_call;
            if (pthread_timedjoin_np(thread, &result, &end)) fail("a blocked thread cannot be cancelled");
            if (result != PTHREAD_CANCELED) fail("the thread ended otherwise");
            if (blocked_call < 7) trip(blocked_fd, 7);
            close(blocked_fd);
        }
}

// Dissolves a connection and uses its socket for another one.
static void connect_again(void) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    int set = epoll_create1(0), fd = dial();
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    for (int round = 0; round < 5; round++) {
        if (connect(fd, &none, sizeof none)) fail("disconnect");
        if (write(fd, &none, 1) != -1) fail("a socket without a connection writes");
        if (connect(fd, (void *)&name, sizeof name)) fail("connect again");
        for (int i = 0; i < ROUND_TRIPS; i++) {
            ask(fd, i);
            if (epoll_wait(set, &event, 1, WAIT_MS) != 1 || event.data.u64 != 7) fail("epoll_wait");
            answer(fd, i);
        }
    }
}

// Selects a descriptor above 1,023 with a set that is large enough, and a pipe that only hangs up.
static void select_more(void) {
    static uint64_t sets[3][64];
    struct rlimit limit = {4096, 4096};
    struct timeval time = {WAIT_MS / 1000, 0}, soon = {0, 30000};
    int ends[2], low = dial(), fd;
    if (setrlimit(RLIMIT_NOFILE, &limit)) fail("setrlimit");
    if ((fd = fcntl(low, F_DUPFD, 2000)) != 2000 || pipe(ends) || close(ends[1])) fail("fcntl");
    ask(fd, 1);
    sets[0][fd / 64] |= 1ULL << fd % 64;
    if (select(fd + 1, (void *)sets[0], NULL, NULL, &time) != 1) fail("select");
    if (sets[0][fd / 64] != 1ULL << fd % 64) fail("a descriptor above 1,023 is not ready");
    answer(fd, 1);
    // A pipe without a writer is ready for reads only.
    sets[1][ends[0] / 64] |= 1ULL << ends[0] % 64;
    sets[2][ends[0] / 64] |= 1ULL << ends[0] % 64;
    ask(fd, 2);
    if (select(fd + 1, (void *)sets[0], (void *)sets[1], (void *)sets[2], &time) != 1) fail("select with a pipe");
    if (sets[0][fd / 64] != 1ULL << fd % 64 || sets[1][ends[0] / 64] || sets[2][ends[0] / 64]) fail("a pipe is ready");
    answer(fd, 2);
    if (select(fd + 1, (void *)sets[0], NULL, NULL, &soon) != 0 || sets[0][fd / 64]) fail("nothing is ready");
}

// Sets options that need the kernel's stream before there is another one: low water marks, signals, urgent data.
static void ask_for_options(void) {
    int before = shared_streams();
    for (int option = 0; option < 5; option++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), eight = 8, one = 1, mark;
        if (connect(fd, (void *)&name, sizeof name)) fail("connect");
        switch (option) {
            case 0: if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &eight, sizeof eight)) fail("SO_RCVLOWAT"); break;
            case 1: if (setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one)) fail("SO_OOBINLINE"); break;
            case 2: if (fcntl(fd, F_SETOWN, getpid())) fail("F_SETOWN"); break;
            case 3: if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC)) fail("O_ASYNC"); break;
            case 4: if (ioctl(fd, SIOCATMARK, &mark) || mark) fail("SIOCATMARK"); break;
        }
        if (option == 2 || option == 3) signal(SIGIO, SIG_IGN);
        make_trips(fd);
        if (shared_streams() != before) fail("the stream left TCP");
        close(fd);
    }
    // A mark that is set later: reads wait for eight bytes, and so do waits.
    int fd = dial(), eight = 8;
    struct pollfd entry = {fd, POLLIN, 0};
    char bytes[8];
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &eight, sizeof eight)) fail("SO_RCVLOWAT");
    socklen_t length = sizeof eight;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &eight, &length) || eight != 8) fail("another mark");
    for (int round = 0; round < 20; round++) {
        put(fd, "1234", 4);
        if (poll(&entry, 1, 20)) fail("four bytes are enough");
        put(fd, "5678", 4);
        // Without the wait the kernel itself may sleep for ever, with half of the bytes taken.
        if (poll(&entry, 1, WAIT_MS) != 1 || entry.revents != POLLIN) fail("eight bytes are too few");
        if (read(fd, bytes, 8) != 8 || memcmp(bytes, "12345678", 8)) fail("a read below the mark");
    }
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    static const struct {
        const char *name;
        void (*act)(void);
    } parts[] = {
        {"forks", fork_beside_threads},
        {"handlers", use_streams_in_handlers},
        {"nested", wait_for_a_set},
        {"copies", wait_for_copies},
        {"restart", continue_after_handlers},
        {"cancel", cancel_blocked_threads},
        {"again", connect_again},
        {"select", select_more},
        {"options", ask_for_options},
    };
    signal(SIGPIPE, SIG_IGN);
    pid_t server = serve();
    int fd = dial();
    if (has_library() && !is_shared()) fail("the stream stayed on TCP");
    close(fd);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(part, parts[i].name)) continue;
        // A timer of its own: the handlers' signal is SIGALRM.
        struct itimerval limit = {{0, 0}, {LIMIT_S, 0}};
        if (setitimer(ITIMER_VIRTUAL, &limit, NULL)) fail("setitimer");
        parts[i].act();
        kill(server, SIGKILL);
        return 0;
    }
    kill(server, SIGKILL);
    return 2;
}
