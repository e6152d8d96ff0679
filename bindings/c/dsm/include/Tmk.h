/*
 * The calls of TreadMarks, on ddss_dsm.h. `ddss dsm run -n 4 --same-addresses -- ./program` starts the ranks; Tmk_distribute needs the
 * addresses to be the same. A call that fails ends the process with a message, and the other processes with it.
 *
 * Define TMK_HEAP_BYTES before the first #include for a heap of another size, the same in all processes. All barriers meet all
 * processes. A variable that was distributed arrives at the next barrier.
 */
#ifndef TMK_H
#define TMK_H

#include <ddss_dsm.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef TMK_HEAP_BYTES
#define TMK_HEAP_BYTES (256u << 20)
#endif
#define TMK_NPROCS 16
#define TMK_NLOCKS 32768
#define TMK_NBARRIERS 32768

#define Tmk_proc_id ((unsigned)ddss_dsm_rank())
#define Tmk_nprocs ((unsigned)ddss_dsm_ranks())
#define Tmk_page_size 4096u

/* Ends this process with a message. */
static inline void Tmk_errexit(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    exit(1);
}

static inline void Tmk_check_(const char *call, int result) {
    if (result < 0) {
        Tmk_errexit("%s: %s\n", call, ddss_dsm_error());
    }
}

static inline void Tmk_check_index_(const char *call, unsigned index, unsigned end) {
    if (index >= end) {
        Tmk_errexit("%s: %u is not below %u\n", call, index, end);
    }
}

static inline void Tmk_startup(int argc, char **argv) {
    (void)argc;
    (void)argv;
    Tmk_check_("Tmk_startup", ddss_dsm_join(TMK_HEAP_BYTES, 0, NULL));
}

static inline void Tmk_exit(int status) {
    /* A process that has failed does not wait for the others: they learn that it is lost. */
    if (status == 0) {
        Tmk_check_("Tmk_exit", ddss_dsm_leave());
    }
    exit(status);
}

/* Returns null if there is no room. */
static inline char *Tmk_malloc(unsigned long bytes) { return (char *)ddss_dsm_malloc(bytes); }

static inline void Tmk_free(void *address) { Tmk_check_("Tmk_free", ddss_dsm_free(address)); }

static inline void Tmk_distribute(const void *address, unsigned long bytes) {
    Tmk_check_("Tmk_distribute", ddss_dsm_distribute((void *)address, bytes));
}

static inline void Tmk_barrier(unsigned barrier) {
    Tmk_check_index_("Tmk_barrier", barrier, TMK_NBARRIERS);
    Tmk_check_("Tmk_barrier", ddss_dsm_barrier());
}

static inline void Tmk_lock_acquire(unsigned lock) {
    Tmk_check_index_("Tmk_lock_acquire", lock, TMK_NLOCKS);
    Tmk_check_("Tmk_lock_acquire", ddss_dsm_lock(lock));
}

static inline void Tmk_lock_release(unsigned lock) {
    Tmk_check_index_("Tmk_lock_release", lock, TMK_NLOCKS);
    Tmk_check_("Tmk_lock_release", ddss_dsm_unlock(lock));
}

#endif
