/* Calls in order and out of order, with good and bad arguments. */
#include <ddss_dsm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int line, int found, int expected, const char *words) {
    if (found != expected || (words && !strstr(ddss_dsm_error(), words))) {
        fprintf(stderr, "line %d: %d instead of %d: %s\n", line, found, expected, ddss_dsm_error());
        exit(1);
    }
}
#define OK(call) expect(__LINE__, call, 0, NULL)
#define FAILS(call, code, words) expect(__LINE__, call, code, words)
#define HOLDS(condition) expect(__LINE__, !!(condition), 1, NULL)

static void on_lost_page(const char *message) { fprintf(stderr, "lost: %s\n", message); }

static void without_a_space(void) {
    const char *words = "call ddss_dsm_join first";
    void *address = NULL;
    uint64_t number = 0;
    FAILS(ddss_dsm_barrier(), DDSS_DSM_INVALID, words);
    FAILS(ddss_dsm_region("grid", 64, &address), DDSS_DSM_INVALID, words);
    FAILS(ddss_dsm_lock(0), DDSS_DSM_INVALID, words);
    FAILS(ddss_dsm_restored(&number), DDSS_DSM_INVALID, words);
    FAILS(ddss_dsm_leave(), DDSS_DSM_INVALID, words);
    FAILS(ddss_dsm_free(&number), DDSS_DSM_INVALID, words);
    HOLDS(ddss_dsm_malloc(64) == NULL);
    HOLDS(ddss_dsm_rank() == -1 && ddss_dsm_ranks() == -1);
}

static void bad_arguments(void) {
    void *address = NULL;
    uint32_t lock = 0;
    static int variable;
    FAILS(ddss_dsm_join(4096, 0, NULL), DDSS_DSM_INVALID, "call ddss_dsm_leave first");
    FAILS(ddss_dsm_region(NULL, 64, &address), DDSS_DSM_INVALID, "the name is a null pointer");
    FAILS(ddss_dsm_region("grid", 64, NULL), DDSS_DSM_INVALID, "the place of the address is a null pointer");
    FAILS(ddss_dsm_region("", 64, &address), DDSS_DSM_INVALID, "1 to");
    FAILS(ddss_dsm_region("\xff", 64, &address), DDSS_DSM_INVALID, "not text in UTF-8");
    FAILS(ddss_dsm_region("huge", (size_t)1 << 40, &address), DDSS_DSM_NO_ROOM, "no room for region huge");
    FAILS(ddss_dsm_region("grid", (size_t)-1, &address), DDSS_DSM_NO_ROOM, NULL);
    FAILS(ddss_dsm_lock(DDSS_DSM_INDICES), DDSS_DSM_INVALID, "lock 65000 is not below 65000");
    FAILS(ddss_dsm_unlock(7), DDSS_DSM_INVALID, "cannot");
    FAILS(ddss_dsm_post(0xffffffff), DDSS_DSM_INVALID, "semaphore 4294967295");
    FAILS(ddss_dsm_wait(DDSS_DSM_INDICES), DDSS_DSM_INVALID, "semaphore");
    FAILS(ddss_dsm_add(DDSS_DSM_INDICES, 1, NULL), DDSS_DSM_INVALID, "counter");
    FAILS(ddss_dsm_new_lock(NULL), DDSS_DSM_INVALID, "null");
    FAILS(ddss_dsm_restored(NULL), DDSS_DSM_INVALID, "null");
    FAILS(ddss_dsm_distribute(NULL, 8), DDSS_DSM_INVALID, "null");
    FAILS(ddss_dsm_create(NULL, &variable, &variable + 1), DDSS_DSM_INVALID, "the function is a null pointer");
    FAILS(ddss_dsm_create(without_a_space, &variable, &variable), DDSS_DSM_INVALID, "the range is a null pointer");
    FAILS(ddss_dsm_create(without_a_space, &variable, &variable + 1), DDSS_DSM_INVALID, "only rank 0");
    FAILS(ddss_dsm_free(&lock), DDSS_DSM_INVALID, "no address that ddss_dsm_malloc has returned");
    HOLDS(ddss_dsm_malloc((size_t)-1) == NULL && strstr(ddss_dsm_error(), "no room for 18446744073709551615 bytes"));
    HOLDS(ddss_dsm_malloc((size_t)2 << 20) == NULL);
}

static void memory(void) {
    char *small = ddss_dsm_malloc(100), *other = ddss_dsm_malloc(100), *large = ddss_dsm_malloc(10000);
    HOLDS(small && other && large && (uintptr_t)large % 4096 == 0 && (uintptr_t)small % 64 == 0);
    HOLDS(small + 100 <= other || other + 100 <= small);
    memset(small, 1, 100);
    memset(other, 2, 100);
    memset(large, 3, 10000);
    HOLDS(small[99] == 1 && other[0] == 2);
    OK(ddss_dsm_free(large));
    FAILS(ddss_dsm_free(large), DDSS_DSM_INVALID, "free already");
    FAILS(ddss_dsm_free(small + 64), DDSS_DSM_INVALID, "no address");
    /* More than the heap has, unless freed blocks are used again. */
    for (int round = 0; round < 200; round++) {
        char *block = ddss_dsm_malloc(9000);
        HOLDS(block != NULL);
        memset(block, round, 9000);
        OK(ddss_dsm_free(block));
    }
    OK(ddss_dsm_free(small));
    OK(ddss_dsm_free(other));
    OK(ddss_dsm_free(NULL));
}

int main(int argc, char **argv) {
    uint64_t *cells = NULL, before = 0, step = 0;
    uint32_t lock = 0, first = 0;
    static uint64_t shipped;
    static uint64_t *pointer;
    without_a_space();
    OK(ddss_dsm_join(1 << 20, 60, on_lost_page));
    int rank = ddss_dsm_rank(), ranks = ddss_dsm_ranks();
    HOLDS(rank >= 0 && rank < ranks);
    if (argc > 1 && strcmp(argv[1], "die") == 0) {
        if (rank == 1) {
            _Exit(7);
        }
        FAILS(ddss_dsm_barrier(), DDSS_DSM_LOST, "rank 1 is lost");
        FAILS(ddss_dsm_barrier(), DDSS_DSM_LOST, "rank 1 is lost");
        printf("rank 1 is lost\n");
        return 0;
    }
    bad_arguments();
    /* In turns: memory that one rank frees is the next one's. */
    OK(ddss_dsm_lock(20));
    memory();
    OK(ddss_dsm_unlock(20));
    OK(ddss_dsm_region("cells", 8 * 4096, (void **)&cells));
    FAILS(ddss_dsm_region("cells", 8 * 4097, (void **)&pointer), DDSS_DSM_INVALID, "cells");
    HOLDS(cells[rank * 512 + 5] == 0 && ddss_dsm_restored(&step) == 0);
    cells[rank * 512 + 5] = (uint64_t)rank + 1;
    OK(ddss_dsm_barrier());
    for (int other = 0; other < ranks; other++) {
        HOLDS(cells[other * 512 + 5] == (uint64_t)other + 1);
    }
    /* Sections may overlap. */
    OK(ddss_dsm_lock(1));
    OK(ddss_dsm_lock(2));
    cells[4000] += 1;
    OK(ddss_dsm_unlock(1));
    cells[4001] += 1;
    OK(ddss_dsm_unlock(2));
    OK(ddss_dsm_new_lock(&lock));
    OK(ddss_dsm_new_lock(&first));
    HOLDS(lock >= 32768 && first > lock);
    OK(ddss_dsm_lock(lock));
    OK(ddss_dsm_unlock(lock));
    OK(ddss_dsm_add(9, 3, &before));
    HOLDS(before % 3 == 0 && before < 3 * (uint64_t)ranks);
    OK(ddss_dsm_add(9, 0, NULL));
    if (rank > 0) {
        OK(ddss_dsm_wait((uint32_t)rank));
        HOLDS(cells[100] == (uint64_t)rank);
    }
    cells[100] = (uint64_t)rank + 1;
    OK(ddss_dsm_post((uint32_t)rank + 1));
    OK(ddss_dsm_barrier());
    HOLDS(cells[100] == (uint64_t)ranks && cells[4001] == (uint64_t)ranks);
    /* Variables of each rank in turns, more than there is room for between two barriers. */
    for (int round = 0; round < 3 * ranks; round++) {
        if (round % ranks == rank) {
            shipped = 1000 + (uint64_t)round;
            pointer = &cells[round];
            OK(ddss_dsm_distribute(&shipped, sizeof shipped));
            for (int more = 0; more < 63; more++) {
                OK(ddss_dsm_distribute(&pointer, sizeof pointer));
            }
            FAILS(ddss_dsm_distribute(&pointer, sizeof pointer), DDSS_DSM_NO_ROOM, "64 variables between two barriers");
        }
        OK(round % 2 ? ddss_dsm_barrier() : ddss_dsm_checkpoint((uint64_t)round + 1));
        HOLDS(shipped == 1000 + (uint64_t)round && pointer == &cells[round]);
    }
    OK(ddss_dsm_leave());
    HOLDS(ddss_dsm_rank() == -1);
    FAILS(ddss_dsm_barrier(), DDSS_DSM_INVALID, "call ddss_dsm_join first");
    printf("rank %d of %d is content\n", rank, ranks);
    return 0;
}
