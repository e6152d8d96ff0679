/* What the macros of parmacs.m4 call. A call that fails ends the process with a message, and the other processes with it. */
#ifndef DDSS_PARMACS_H
#define DDSS_PARMACS_H

#include <ddss_dsm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#ifndef PARMACS_HEAP_BYTES
#define PARMACS_HEAP_BYTES (256u << 20)
#endif

/* The linker's: the variables of the program are between them. */
extern char __data_start[], _end[];

static inline void ddss_parmacs_check(const char *call, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, ddss_dsm_error());
        exit(1);
    }
}

/* Only rank 0 returns. The others run the function that it creates, and end. */
static inline void ddss_parmacs_begin(void) {
    void (*function)(void) = NULL;
    ddss_parmacs_check("MAIN_INITENV", ddss_dsm_join(PARMACS_HEAP_BYTES, 0, NULL));
    ddss_parmacs_check("CREATE", ddss_dsm_await_function(__data_start, _end, &function));
    if (ddss_dsm_rank() > 0) {
        if (function) {
            function();
            ddss_parmacs_check("CREATE", ddss_dsm_end_function());
        }
        ddss_parmacs_check("MAIN_END", ddss_dsm_leave());
        exit(0);
    }
}

static inline void ddss_parmacs_end(void) {
    ddss_parmacs_check("MAIN_END", ddss_dsm_leave());
    exit(0);
}

static inline void ddss_parmacs_create(void (*function)(void)) {
    ddss_parmacs_check("CREATE", ddss_dsm_create(function, __data_start, _end));
}

static inline void ddss_parmacs_barrier(long processes) {
    if (processes != ddss_dsm_ranks()) {
        fprintf(stderr, "BARRIER: of %ld processes, and the space has %d: start as many with -n\n", processes, ddss_dsm_ranks());
        exit(1);
    }
    ddss_parmacs_check("BARRIER", ddss_dsm_barrier());
}

static inline unsigned ddss_parmacs_new_lock(void) {
    uint32_t lock = 0;
    ddss_parmacs_check("LOCKINIT", ddss_dsm_new_lock(&lock));
    return lock;
}

static inline unsigned long ddss_parmacs_clock(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (unsigned long)now.tv_sec * 1000000ul + (unsigned long)now.tv_usec;
}

#endif
