/* Library for LD_PRELOAD: the next fsync takes longer than a lease if the file exists that DDSS_TEST_SLOW_SYNC names. No read ends
   while the file exists that has ".reads" behind that name. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int descriptor) {
    const char *slow = getenv("DDSS_TEST_SLOW_SYNC");
    if (slow && unlink(slow) == 0) {
        const struct timespec span = {14, 0};
        nanosleep(&span, NULL);
    }
    return syscall(SYS_fsync, descriptor);
}

ssize_t pread64(int descriptor, void *into, size_t bytes, off64_t from) {
    const char *slow = getenv("DDSS_TEST_SLOW_SYNC");
    const struct timespec pause = {0, 10000000};
    char hung[4096];
    snprintf(hung, sizeof hung, "%s.reads", slow ? slow : "");
    while (slow && access(hung, F_OK) == 0) nanosleep(&pause, NULL);
    return syscall(SYS_pread64, descriptor, into, bytes, from);
}
