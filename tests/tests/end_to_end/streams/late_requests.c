// Signals and urgent data that a program asks for once its stream has left TCP: late_requests PART
//
// The program ends with 0 if every byte and every signal came, before its alarm.
#define PROGRAM "late_requests"
#include "program.h"

enum { WORDS = 300, BURST = 20000, LIMIT_S = 50, SIGNAL_WAYS = 6, WAYS = 5, READY = SIGUSR1, CHOSEN = 40 };
static volatile sig_atomic_t came, wrong;
static int expected_fd;

static void count(int signal, siginfo_t *info, void *unused) {
    came++;
    if (signal == CHOSEN && info->si_fd != expected_fd) wrong++;
}

// Asks for a signal about each byte, in one of several ways.
static void ask_for_signals(int fd, int way) {
    int one = 1, flags = fcntl(fd, F_GETFL) | O_NONBLOCK;
    struct f_owner_ex owner = {F_OWNER_PID, getpid()};
    if (fcntl(fd, F_SETFL, flags)) fail("O_NONBLOCK");
    if ((way == 3 || way == 5) && fcntl(fd, F_SETSIG, CHOSEN)) fail("F_SETSIG");
    if (way == 4 && fcntl(fd, F_SETFL, flags | O_ASYNC)) fail("O_ASYNC");
    if (way == 1 ? fcntl(fd, F_SETOWN_EX, &owner) : fcntl(fd, F_SETOWN, getpid())) fail("F_SETOWN");
    if (way == 2 ? ioctl(fd, FIOASYNC, &one) : fcntl(fd, F_SETFL, flags | O_ASYNC)) fail("O_ASYNC");
    if (!(fcntl(fd, F_GETFL) & O_ASYNC)) fail("O_ASYNC is not set");
}

// Takes what is there, in a program that waits for signals only.
static uint64_t take(int fd) {
    static char bytes[1 << 16];
    uint64_t total = 0;
    ssize_t found;
    while ((found = read(fd, bytes, sizeof bytes)) > 0) total += found;
    if (found == 0 || errno != EAGAIN) fail("read");
    return total;
}

static void take_on_signals(int way) {
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
    sigset_t blocked, before;
    int fd, told[2], zero = 0;
    char byte;
    if (pipe(told)) fail("pipe");
    pid_t child = make_pair(&fd);
    if (!child) {
        // A burst that meets the request, then single words, each of which the peer has to hear of.
        for (int i = 0; i < BURST; i++) put(fd, &i, sizeof i);
        for (int i = 0; i < WORDS; i++) {
            if (read(told[0], &byte, 1) != 1) fail("hear");
            put(fd, &i, sizeof i);
        }
        if (read(told[0], &byte, 1) != 1) fail("hear");
        for (uint64_t word; read(fd, &word, sizeof word) == sizeof word;) put(fd, &word, sizeof word);
        _exit(0);
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGIO), sigaddset(&blocked, CHOSEN);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    if (sigaction(SIGIO, &action, NULL) || sigaction(CHOSEN, &action, NULL)) fail("sigaction");
    came = 0, expected_fd = fd;
    usleep(way * 100);
    ask_for_signals(fd, way);
    uint64_t taken = take(fd), due = BURST * sizeof(int);
    for (int word = 0; word <= WORDS; word++, due += sizeof(int)) {
        for (; taken < due; taken += take(fd)) {
            int seen = came;
            siginfo_t info;
            while (way != 5 && came == seen) sigsuspend(&before);
            // A full queue makes it SIGIO, which names no descriptor.
            if (way == 5) count(sigwaitinfo(&blocked, &info), &info, NULL);
        }
        if (taken != due) fail("too many bytes");
        if (word < WORDS && write(told[1], "x", 1) != 1) fail("tell");
    }
    if (wrong) fail("the signal names another descriptor");
    // From here on a signal would end the program.
    int flags = fcntl(fd, F_GETFL) & ~(O_ASYNC | O_NONBLOCK);
    if (way == 2 ? ioctl(fd, FIOASYNC, &zero) || fcntl(fd, F_SETFL, flags) : fcntl(fd, F_SETFL, flags)) fail("F_SETFL");
    signal(SIGIO, SIG_DFL), signal(CHOSEN, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (write(told[1], "x", 1) != 1) fail("tell");
    make_trips(fd);
    shutdown(fd, SHUT_WR);
    join(child);
    if (read(fd, &byte, 1)) fail("the end");
    close(fd), close(told[0]), close(told[1]);
}

// Waits for urgent data in one of several ways. Its signal may come first: it interrupts these calls, whatever its flags say.
static void wait_for_urgent(int fd, int set, int way) {
    struct pollfd entry = {fd, POLLPRI, 0};
    struct epoll_event event;
    fd_set except;
    int found;
    do {
        FD_ZERO(&except);
        FD_SET(fd, &except);
        switch (way) {
            case 0: while (!came) usleep(1000); return;
            case 1: found = poll(&entry, 1, -1); break;
            case 2: found = select(fd + 1, NULL, NULL, &except, NULL); break;
            default: found = epoll_wait(set, &event, 1, -1);
        }
    } while (found < 0 && errno == EINTR);
    if (found != 1) fail("wait for urgent data");
    if (way == 1 && entry.revents != POLLPRI) fail("POLLPRI");
    if (way >= 3 && !(event.events & EPOLLPRI)) fail("EPOLLPRI");
}

static int at_mark(int fd) {
    int mark;
    if (ioctl(fd, SIOCATMARK, &mark)) fail("SIOCATMARK");
    return mark;
}

static void take_urgent(int way, int is_inline) {
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct epoll_event event = {.events = EPOLLPRI | (way == 4 ? EPOLLET : 0)};
    int fd, one = 1, left;
    char bytes[64];
    pid_t child = make_pair(&fd);
    if (!child) {
        // The request came before.
        get(fd, bytes, 1);
        put(fd, "before", 6);
        if (send(fd, "!", 1, MSG_OOB) != 1) fail("MSG_OOB");
        put(fd, "after", 5);
        answer_trips(fd);
        _exit(0);
    }
    int set = epoll_create1(0);
    came = 0;
    if (sigaction(SIGURG, &action, NULL) || fcntl(fd, F_SETOWN, getpid())) fail("F_SETOWN");
    if (is_inline && setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one)) fail("SO_OOBINLINE");
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) || at_mark(fd)) fail("a mark before urgent data");
    put(fd, "x", 1);
    wait_for_urgent(fd, set, way);
    if (!came) usleep(1000);
    // All of it, or the first part: a read ends before the mark.
    for (size_t done = 0; done < 6;) {
        if (at_mark(fd)) fail("a mark before its place");
        ssize_t found = read(fd, bytes + done, sizeof bytes - done);
        if (found <= 0) fail("read");
        done += found;
        if (done > 6) fail("a read beyond the mark");
    }
    if (memcmp(bytes, "before", 6) || !at_mark(fd)) fail("no mark");
    if (!is_inline && (recv(fd, bytes, 1, MSG_OOB) != 1 || *bytes != '!')) fail("recv of urgent data");
    get(fd, bytes, 5 + is_inline);
    if (memcmp(bytes, is_inline ? "!after" : "after", 5 + is_inline) || at_mark(fd)) fail("bytes behind the mark");
    if (!came || ioctl(fd, FIONREAD, &left) || left) fail("SIGURG");
    make_trips(fd);
    join(child);
    close(fd), close(set);
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    alarm(LIMIT_S);
    if (!strcmp(part, "signals"))
        for (int way = 0; way < SIGNAL_WAYS; way++) take_on_signals(way);
    else if (!strcmp(part, "urgent"))
        for (int way = 0; way < 2 * WAYS; way++) take_urgent(way / 2, way % 2);
    else return 2;
    return 0;
}
