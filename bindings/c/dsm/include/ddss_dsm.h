/*
 * Page-based shared memory of DDSS.
 *
 * A process is one rank of one space. `ddss dsm run -n 4 -- ./program` starts the ranks. The pages of the space are at one address in
 * all ranks, so that a pointer into them means the same everywhere. A page is fetched where it is used first, and bytes that a rank has
 * written go to the others at barriers, locks and semaphores. Two ranks that use one byte without such an order, one of them writing,
 * are a race: a read then returns old or new bytes.
 *
 * Each call returns 0 or a negative number below; ddss_dsm_error() says more. One thread of a process makes calls at a time; all of them
 * may use the memory. A page of a space that has ended raises SIGBUS, behind a message. System calls fail with EFAULT at pages that were
 * not used yet: read(2) into memory of the process, and copy.
 *
 * Link with -lddss_dsm_c.
 */
#ifndef DDSS_DSM_H
#define DDSS_DSM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDSS_DSM_INVALID (-1)   /* an argument is wrong, or the call does not follow from the earlier ones */
#define DDSS_DSM_LOST (-2)      /* a rank is lost, and the space with it: start again, from a checkpoint */
#define DDSS_DSM_TIMED_OUT (-3) /* the others did not do their part in time, and the space has ended */
#define DDSS_DSM_NO_ROOM (-4)   /* a limit of the space */
#define DDSS_DSM_FAILED (-5)    /* anything else */

/* Locks, semaphores and counters of a program have indices below this. */
#define DDSS_DSM_INDICES 65000u

/* Joins the space that `ddss dsm run` has named, with so many bytes for regions and as many for the heap; all ranks name the same. Waits
 * for the other ranks. A call that takes longer than timeout_s seconds ends the space; 0: 600. on_lost_page, unless it is null, is called
 * instead of the message before SIGBUS, from a thread of the library. */
int ddss_dsm_join(uint64_t bytes, uint32_t timeout_s, void (*on_lost_page)(const char *message));

/* Leaves the space, as all ranks do: it waits for them. Pointers into it end. */
int ddss_dsm_leave(void);

/* Number of this rank, and of all ranks; -1 without a space. */
int ddss_dsm_rank(void);
int ddss_dsm_ranks(void);

/* Gives the address of a region of so many bytes, which are zero at first. All ranks that ask for the name get the same memory. */
int ddss_dsm_region(const char *name, size_t bytes, void **address);

/* Allocates shared memory, or returns null. Blocks of 4096 bytes and more begin at a page. Memory that was used before is not zero. Any
 * rank frees it. */
void *ddss_dsm_malloc(size_t bytes);
int ddss_dsm_free(void *address);

/* Meets all ranks: what any of them wrote before, all see afterwards. */
int ddss_dsm_barrier(void);

/* A lock, which the rank that has acquired it releases. */
int ddss_dsm_lock(uint32_t lock);
int ddss_dsm_unlock(uint32_t lock);

/* Gives the index of a lock, 32768 or more, that no rank has been given. */
int ddss_dsm_new_lock(uint32_t *lock);

/* A semaphore, which is 0 at first. A rank that waited sees what the rank that posted wrote before. */
int ddss_dsm_post(uint32_t semaphore);
int ddss_dsm_wait(uint32_t semaphore);

/* Adds to a counter, which is 0 at first, and gives its value before unless `before` is null. It orders as a lock does. */
int ddss_dsm_add(uint32_t counter, uint64_t delta, uint64_t *before);

/* Writes a checkpoint: a barrier, at which all ranks name the same step. */
int ddss_dsm_checkpoint(uint64_t step);

/* Returns 1 and the step if the space goes on from a checkpoint: regions have their bytes. Returns 0 if it begins with zeros. */
int ddss_dsm_restored(uint64_t *step);

/* Copies a variable of this process to the same address of all other ranks, at the next barrier. `ddss dsm run --same-addresses` makes
 * addresses of variables the same. At most 64 times between two barriers. */
int ddss_dsm_distribute(void *address, size_t bytes);

/* Rank 0: starts a function on the next rank, which gets the variables between two addresses as they are now. */
int ddss_dsm_create(void (*function)(void), void *begin, void *end);
/* Rank 0: waits until these functions have ended. */
int ddss_dsm_await_ends(void);
/* All ranks: waits for the function that rank 0 starts here, replaces the variables, and gives its address. Null at rank 0, and where rank
 * 0 leaves first. */
int ddss_dsm_await_function(void *begin, void *end, void (**function)(void));
/* Tells rank 0 that the function has ended. */
int ddss_dsm_end_function(void);

/* Message of the last call of this thread that has failed, valid until the next one fails. */
const char *ddss_dsm_error(void);

#ifdef __cplusplus
}
#endif

#endif
