// Reads that wait for more than the first byte, most of them without taking any: peeks PART
//
// The parent writes in two steps, the child reads. The program ends with 0 if each call did what it does on TCP, before its alarm.
#define PROGRAM "peeks"
#include "program.h"

enum { RING = 256 << 10, PIECE = 100, ALL = RING + 40 * PIECE, LATE_US = 50000, LIMIT_S = 40 };
static unsigned char bytes[ALL], found[ALL];
static int fd;

// Expects `count` bytes of the stream from its byte `from` on.
static void expect(ssize_t result, size_t from, ssize_t count) {
    if (result != count) fprintf(stderr, "%zd bytes instead of %zd\n", result, count), fail("count");
    if (memcmp(found, bytes + from, count)) fail("a wrong byte");
    memset(found, 0, sizeof found);
}

static ssize_t receive_parts(size_t count, int flags) {
    struct iovec parts[2] = {{found, count / 3}, {found + count / 3, count - count / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_flags = -1};
    ssize_t result = recvmsg(fd, &message, flags);
    if (message.msg_flags) fail("flags of a message");
    return result;
}

static void set(int option, const void *value, size_t size) {
    if (setsockopt(fd, SOL_SOCKET, option, value, size)) fail("setsockopt");
}

// Lets the parent write the second half in a moment.
static void ask_for_more(void) {
    tell(to_parent[1]);
}

static void peek_by_recv(void) {
    expect(recv(fd, found, 2 * PIECE, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT), 0, PIECE);
    expect(recv(fd, found, 2 * PIECE, MSG_PEEK), 0, PIECE);
    ask_for_more();
    if (recv(fd, found, 2 * PIECE, MSG_PEEK | MSG_TRUNC | MSG_WAITALL) != 2 * PIECE) fail("MSG_TRUNC");
    expect(recv(fd, found, 2 * PIECE, MSG_PEEK | MSG_WAITALL), 0, 2 * PIECE);
    expect(recv(fd, found, 2 * PIECE, 0), 0, 2 * PIECE);
}

static void peek_by_message(void) {
    ask_for_more();
    expect(receive_parts(2 * PIECE, MSG_PEEK | MSG_WAITALL), 0, 2 * PIECE);
    expect(receive_parts(2 * PIECE, 0), 0, 2 * PIECE);
}

static void read_in_messages(void) {
    struct iovec parts[2] = {{found, PIECE / 2}, {found + PIECE / 2, 3 * PIECE / 2}};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    ask_for_more();
    if (recvmmsg(fd, many, 2, MSG_WAITALL, NULL) != 2) fail("recvmmsg");
    expect(many[0].msg_len + many[1].msg_len, 0, 2 * PIECE);
    if (recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL) != -1 || errno != EAGAIN) fail("recvmmsg without bytes");
}

static void read_first_messages(void) {
    struct iovec part = {found, PIECE / 4};
    struct timespec none = {0, 0}, wrong = {0, -1};
    struct mmsghdr many[8];
    for (int i = 0; i < 8; i++) many[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    if (recvmmsg(fd, many, 8, 0, &wrong) != -1 || errno != EINVAL) fail("a wrong timeout");
    if (recvmmsg(fd, many, 8, 0, &none) != 1 || none.tv_sec || none.tv_nsec) fail("a timeout");
    if (recvmmsg(fd, many, 8, MSG_WAITFORONE, NULL) != 3) fail("MSG_WAITFORONE");
    ask_for_more();
    expect(recv(fd, found, PIECE, MSG_WAITALL), PIECE, PIECE);
}

static void take_unseen(void) {
    ask_for_more();
    if (recv(fd, NULL, 2 * PIECE, MSG_TRUNC | MSG_WAITALL) != 2 * PIECE) fail("bytes that nobody wants");
}

static void peek_at_low_water(void) {
    int low = 2 * PIECE, one = 1;
    ask_for_more();
    set(SO_RCVLOWAT, &low, sizeof low);
    expect(recv(fd, found, 3 * PIECE, MSG_PEEK), 0, 2 * PIECE);
    expect(recv(fd, found, PIECE, MSG_PEEK), 0, PIECE);
    expect(recv(fd, found, 2 * PIECE, 0), 0, 2 * PIECE);
    set(SO_RCVLOWAT, &one, sizeof one);
}

static void peek_until_a_deadline(void) {
    struct timeval soon = {0, 4 * LATE_US}, never = {0, 0};
    ask_for_more();
    set(SO_RCVTIMEO, &soon, sizeof soon);
    expect(recv(fd, found, 3 * PIECE, MSG_PEEK | MSG_WAITALL), 0, 2 * PIECE);
    set(SO_RCVTIMEO, &never, sizeof never);
    expect(recv(fd, found, 2 * PIECE, 0), 0, 2 * PIECE);
}

static void interrupted(int signal) {}

static void peek_until_a_signal(void) {
    struct sigaction action = {.sa_handler = interrupted, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 4 * LATE_US}, {0, 4 * LATE_US}}, never = {{0, 0}, {0, 0}};
    // The handler runs while the bytes that came wait for the rest: the call ends with them.
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL)) fail("setitimer");
    ask_for_more();
    while (recv(fd, found, 3 * PIECE, MSG_PEEK | MSG_WAITALL) != 2 * PIECE) continue;
    if (setitimer(ITIMER_REAL, &never, NULL)) fail("setitimer");
    alarm(LIMIT_S);
    expect(recv(fd, found, 2 * PIECE, 0), 0, 2 * PIECE);
}

// The parent shuts its side in this step.
static void peek_until_the_end(void) {
    ask_for_more();
    expect(recv(fd, found, 3 * PIECE, MSG_PEEK | MSG_WAITALL), 0, 2 * PIECE);
    expect(recv(fd, found, 3 * PIECE, MSG_WAITALL), 0, 2 * PIECE);
    if (recv(fd, found, PIECE, MSG_PEEK | MSG_WAITALL)) fail("an end");
}

// Each step of the child meets PIECE bytes, and as many that come while it waits.
static void wait_for_more(void) {
    static void (*const steps[])(void) = {peek_by_recv, peek_by_message, read_in_messages, read_first_messages, take_unseen,
        peek_at_low_water, peek_until_a_deadline, peek_until_a_signal, peek_until_the_end};
    enum { STEPS = sizeof steps / sizeof *steps };
    pid_t child = make_pair(&fd);
    for (int step = 0; step < STEPS; step++) {
        if (!child) {
            hear(to_child[0]);
            steps[step]();
            tell(to_parent[1]);
            continue;
        }
        put(fd, bytes, PIECE);
        tell(to_child[1]), hear(to_parent[0]);
        usleep(LATE_US);
        put(fd, bytes + PIECE, PIECE);
        if (step == STEPS - 1) shutdown(fd, SHUT_WR);
        hear(to_parent[0]);
    }
    if (!child) _exit(0);
    join(child);
}

// Waits for bytes of three phases: TCP behind a full ring, the ring again, and TCP because of a request.
static void wait_over_borders(void) {
    enum { ON_TCP = RING + 10 * PIECE, IN_RING = ON_TCP + 5 * PIECE };
    pid_t child = make_pair(&fd);
    if (child) {
        put(fd, bytes, ON_TCP);
        tell(to_child[1]), hear(to_parent[0]);
        put(fd, bytes + ON_TCP, IN_RING - ON_TCP);
        tell(to_child[1]), hear(to_parent[0]);
        usleep(LATE_US);
        put(fd, bytes + IN_RING, PIECE);
        usleep(LATE_US);
        put(fd, bytes + IN_RING + PIECE, PIECE);
        join(child);
        return;
    }
    hear(to_child[0]);
    get(fd, found, RING + PIECE);
    expect(RING, 0, RING);
    tell(to_parent[1]), hear(to_child[0]);
    expect(recv(fd, found, 14 * PIECE, MSG_PEEK | MSG_WAITALL), RING + PIECE, 14 * PIECE);
    signal(SIGIO, SIG_IGN);
    if (fcntl(fd, F_SETOWN, getpid()) || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC)) fail("O_ASYNC");
    tell(to_parent[1]);
    expect(recv(fd, found, 16 * PIECE, MSG_PEEK | MSG_WAITALL), RING + PIECE, 16 * PIECE);
    expect(receive_parts(16 * PIECE, MSG_PEEK), RING + PIECE, 16 * PIECE);
    if (recv(fd, found, 16 * PIECE, MSG_PEEK | MSG_TRUNC) != 16 * PIECE) fail("MSG_TRUNC");
    memset(found, 0, sizeof found);
    expect(recv(fd, found, 16 * PIECE, MSG_WAITALL), RING + PIECE, 16 * PIECE);
    _exit(0);
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    alarm(LIMIT_S);
    make_pipes();
    for (int i = 0; i < ALL; i++) bytes[i] = (uint64_t)i * 2654435761u >> 16;
    if (!strcmp(part, "more")) wait_for_more();
    else if (!strcmp(part, "borders")) wait_over_borders();
    else return 2;
    return 0;
}
