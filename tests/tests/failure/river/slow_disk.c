/* Library for LD_PRELOAD: the next fsync takes longer than a lease if the file exists that DDSS_TEST_SLOW_SYNC names. */
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
