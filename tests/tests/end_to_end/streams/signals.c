// A program whose handlers meet a library that holds a lock: signals PART
//
// Both ends of its stream are its own. It ends with 0 if every handler ran, before its alarm.
#define _GNU_SOURCE
#define __USE_XOPEN_EXTENDED
#define PROGRAM "signals"
#include "program.h"

#include <sys/resource.h>
#include <time.h>

enum { SIGNALS = 500, WORD = 8, ROUNDS = 24, MUCH_MEMORY = 96 << 20 };
static int ends[2];
static volatile sig_atomic_t ran;
extern sighandler_t sigset(int, sighandler_t);
extern int __sigaction(int, const struct sigaction *, struct sigaction *);

static void move(int from, int to) {
    uint64_t word = 1;
    CHECK(send(from, &word, WORD, 0) == WORD && recv(to, &word, WORD, MSG_WAITALL) == WORD);
}

static void connect_pair(void) {
    struct sockaddr_in name;
    int listener = listen_on(&name);
    ends[0] = connect_to(&name);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
    for (int round = 0; round < ROUND_TRIPS; round++) move(ends[0], ends[1]), move(ends[1], ends[0]);
    close(listener);
}

static void count(int signal) {
    ran++;
}

// Writes to the stream: code that it interrupts may be writing.
static void write_word(int signal) {
    uint64_t word = 1;
    int error = errno;
    CHECK(write(ends[0], &word, WORD) == WORD);
    errno = error;
    ran++;
}

// Lets a timer send signals until so many handlers have run, while the program keeps the library's locks busy.
static void work_under(int signal, void (*handler)(int), int is_limited) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec often = {{0, 200000}, {0, 200000}}, never = {{0, 0}, {0, 0}};
    struct rlimit none = {0, 0};
    uint64_t words[512];
    sigset_t blocked;
    timer_t timer;
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer));
    // The timer has its place in the queue already, and a signal that is sent again gets none.
    CHECK(!is_limited || !setrlimit(RLIMIT_SIGPENDING, &none));
    CHECK(!timer_settime(timer, 0, &often, NULL));
    while (ran < SIGNALS) {
        CHECK(send(ends[0], words, sizeof words, 0) == sizeof words);
        for (ssize_t found; (found = recv(ends[1], words, sizeof words, MSG_DONTWAIT)) > 0;) continue;
        CHECK(!sigprocmask(SIG_BLOCK, NULL, &blocked) && !sigismember(&blocked, SIGTERM) && !sigismember(&blocked, SIGUSR2));
    }
    CHECK(!timer_settime(timer, 0, &never, NULL));
}

static void act_of_old_names(void) {
    struct sigaction action = {.sa_handler = write_word, .sa_flags = SA_RESTART}, found;
    sigset_t mask;
    CHECK(signal(SIGUSR1, SIG_ERR) == SIG_ERR && errno == EINVAL);
    CHECK(sigset(0, write_word) == SIG_ERR && errno == EINVAL);
    CHECK(sigset(SIGUSR1, write_word) == SIG_DFL && sigset(SIGUSR1, write_word) == write_word);
    // Hold means: blocked, with the handler as it is.
    CHECK(sigset(SIGUSR1, SIG_HOLD) == write_word);
    CHECK(!sigprocmask(SIG_BLOCK, NULL, &mask) && sigismember(&mask, SIGUSR1) == 1);
    CHECK(!raise(SIGUSR1) && ran == 0);
    CHECK(sigset(SIGUSR1, write_word) == SIG_HOLD && ran == 1);
    CHECK(!sigprocmask(SIG_BLOCK, NULL, &mask) && sigismember(&mask, SIGUSR1) == 0);
    CHECK(!sigaction(SIGUSR1, NULL, &found) && found.sa_handler == write_word && !(found.sa_flags & SA_RESTART));
    work_under(SIGUSR1, write_word, 0);
    CHECK(!__sigaction(SIGUSR2, &action, NULL));
    CHECK(!__sigaction(SIGUSR2, NULL, &found) && found.sa_handler == write_word);
    ran = 0;
    work_under(SIGUSR2, write_word, 0);
}

static pid_t handlers_child;

// Forks, perhaps inside another fork. The child uses the stream after all other processes have closed this end.
static void fork_here(int signal) {
    if (ran++) return;
    handlers_child = fork();
    CHECK(handlers_child >= 0);
    if (handlers_child) return;
    uint64_t word = 1;
    usleep(50000);
    CHECK(send(ends[0], &word, WORD, 0) == WORD);
    _exit(0);
}

// A timer interrupts each fork somewhere: the more memory, the longer the kernel takes.
static void fork_in_forks(void) {
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    char *memory = mmap(NULL, MUCH_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && !madvise(memory, MUCH_MEMORY, MADV_NOHUGEPAGE));
    memset(memory, 1, MUCH_MEMORY);
    CHECK(!sigaction(SIGALRM, &action, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        struct itimerval soon = {{0, 0}, {0, 50 + 300 * round}};
        uint64_t word = 0;
        int status;
        ran = 0;
        CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) _exit(close(ends[0]));
        while (!ran) usleep(100);
        CHECK(!close(ends[0]) && waitpid(child, &status, 0) == child && !status);
        int old = ends[1];
        connect_pair();
        CHECK(recv(old, &word, WORD, MSG_WAITALL) == WORD && word == 1);
        CHECK(waitpid(handlers_child, &status, 0) == handlers_child && !status);
        CHECK(recv(old, &word, WORD, 0) == 0 && !close(old));
        move(ends[0], ends[1]), move(ends[1], ends[0]);
        CHECK(is_shared() == has_library());
    }
}

int main(int count_of, char **arguments) {
    const char *part = count_of > 1 ? arguments[1] : "";
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    alarm(40);
    connect_pair();
    CHECK(is_shared() == has_library());
    if (!strcmp(part, "limit")) {
        CHECK(!sigaction(SIGRTMIN, &action, NULL));
        work_under(SIGRTMIN, count, 1);
    } else if (!strcmp(part, "names")) {
        act_of_old_names();
    } else if (!strcmp(part, "forks")) {
        alarm(0);
        fork_in_forks();
    } else {
        return 2;
    }
    return 0;
}
