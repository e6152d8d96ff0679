/* A histogram, and a product of matrices, with the macros of PARMACS. The first process verifies both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MAIN_ENV

enum { SIZE = 60, BUCKETS = 16, VALUES = 20000 };

/* What all processes share. */
struct shared {
    int next;
    int counts[BUCKETS];
    double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];
    LOCKDEC(ids)
    ALOCKDEC(buckets, BUCKETS)
    BARDEC(start)
};

/* Variables that the first process sets before it creates the others. */
struct shared *shared;
long processes;
static double scale = 1;
static char name[32];

static unsigned value(unsigned at) { return (at * 2654435761u) >> 8; }

static void work(void) {
    int own, at, row, column, k;
    /* Each function gets the variables as they were. */
    if (scale != 2.5 || strcmp(name, "the product") != 0) {
        fprintf(stderr, "the variables are %g and %s\n", scale, name);
        exit(1);
    }
    LOCK(shared->ids)
    own = shared->next++;
    UNLOCK(shared->ids)
    BARRIER(shared->start, processes)
    for (at = own; at < VALUES; at += (int)processes * 50) {
        unsigned bucket = value((unsigned)at) % BUCKETS;
        ALOCK(shared->buckets, bucket)
        shared->counts[bucket]++;
        AULOCK(shared->buckets, bucket)
    }
    for (row = own; row < SIZE; row += (int)processes) {
        for (column = 0; column < SIZE; column++) {
            double sum = 0;
            for (k = 0; k < SIZE; k++) {
                sum += shared->a[row][k] * shared->b[k][column];
            }
            shared->c[row][column] = scale * sum;
        }
    }
    /* A variable of this process alone. */
    scale = own;
    BARRIER(shared->start, processes)
}

static void verify(void) {
    int expected[BUCKETS] = {0}, own, at, row, column, k;
    for (own = 0; own < processes; own++) {
        for (at = own; at < VALUES; at += (int)processes * 50) {
            expected[value((unsigned)at) % BUCKETS]++;
        }
    }
    if (memcmp(expected, shared->counts, sizeof expected) != 0) {
        fprintf(stderr, "the counts differ\n");
        exit(1);
    }
    for (row = 0; row < SIZE; row++) {
        for (column = 0; column < SIZE; column++) {
            double sum = 0;
            for (k = 0; k < SIZE; k++) {
                sum += shared->a[row][k] * shared->b[k][column];
            }
            if (shared->c[row][column] != 2.5 * sum) {
                fprintf(stderr, "element %d, %d differs\n", row, column);
                exit(1);
            }
        }
    }
}

int main(int argc, char **argv) {
    int row, column;
    unsigned long begun, ended;
    (void)argc;
    MAIN_INITENV(,)
    CLOCK(begun)
    processes = atol(argv[1]);
    shared = G_MALLOC(sizeof *shared);
    if (!shared) {
        fprintf(stderr, "no memory: %s\n", ddss_dsm_error());
        exit(1);
    }
    memset(shared, 0, sizeof *shared);
    for (row = 0; row < SIZE; row++) {
        for (column = 0; column < SIZE; column++) {
            shared->a[row][column] = row - column;
            shared->b[row][column] = row * column % 7;
        }
    }
    LOCKINIT(shared->ids)
    ALOCKINIT(shared->buckets, BUCKETS)
    BARINIT(shared->start, processes)
    scale = 2.5;
    strcpy(name, "the product");
ifdef(`ALL_AT_ONCE', `    CREATE(work, processes)', `    for (row = 1; row < processes; row++) {
        CREATE(work)
    }
    work();')
    WAIT_FOR_END(processes)
    verify();
    CLOCK(ended)
    printf("%s of %ld processes is right%s\n", name, processes, ended < begun ? ", and time runs back" : "");
    G_FREE(shared)
    MAIN_END
}
