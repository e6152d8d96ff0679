/* A heat stencil with the calls of TreadMarks. Process 0 prints the plate's checksum, which has to be that of one process. */
#include <Tmk.h>
#include <string.h>

enum { SIZE = 130, STEPS = 12 };

/* Variables that process 0 distributes. */
static double *plates;
static struct {
    double edge;
    double *sum;
    int steps;
} setup;

static double *plate(int number) { return plates + (size_t)number * SIZE * SIZE; }

static void compute(const double *from, double *to, int first, int end) {
    for (int row = first; row < end; row++) {
        for (int column = 1; column < SIZE - 1; column++) {
            const double *at = from + row * SIZE + column;
            to[row * SIZE + column] = (at[-SIZE] + at[SIZE] + at[-1] + at[1]) / 4;
        }
    }
}

static void begin(double *at, double edge) {
    memset(at, 0, SIZE * SIZE * sizeof *at);
    for (int column = 0; column < SIZE; column++) {
        at[column] = edge;
    }
}

int main(int argc, char **argv) {
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        setup.edge = 100;
        setup.steps = STEPS;
        char *unused = Tmk_malloc(40000);
        plates = (double *)Tmk_malloc(2 * SIZE * SIZE * sizeof *plates);
        setup.sum = (double *)Tmk_malloc(sizeof *setup.sum);
        if (!unused || !plates || !setup.sum) {
            Tmk_errexit("no memory: %s\n", ddss_dsm_error());
        }
        Tmk_free(unused);
        begin(plate(0), setup.edge);
        begin(plate(1), setup.edge);
        *setup.sum = 0;
        Tmk_distribute(&plates, sizeof plates);
        Tmk_distribute(&setup, sizeof setup);
    }
    Tmk_barrier(0);
    int inner = SIZE - 2;
    int first = 1 + (int)Tmk_proc_id * inner / (int)Tmk_nprocs;
    int end = 1 + ((int)Tmk_proc_id + 1) * inner / (int)Tmk_nprocs;
    for (int step = 0; step < setup.steps; step++) {
        compute(plate(step % 2), plate((step + 1) % 2), first, end);
        Tmk_barrier((unsigned)step % 2);
    }
    double part = 0;
    for (int row = first; row < end; row++) {
        part += plate(setup.steps % 2)[row * SIZE + SIZE / 2];
    }
    Tmk_lock_acquire(3);
    *setup.sum += part;
    Tmk_lock_release(3);
    Tmk_barrier(0);
    if (Tmk_proc_id == 0) {
        static double alone[2][SIZE * SIZE];
        begin(alone[0], setup.edge);
        begin(alone[1], setup.edge);
        for (int step = 0; step < STEPS; step++) {
            compute(alone[step % 2], alone[(step + 1) % 2], 1, SIZE - 1);
        }
        if (memcmp(alone[STEPS % 2], plate(STEPS % 2), sizeof alone[0]) != 0) {
            Tmk_errexit("the plate differs from that of one process\n");
        }
        double sum = 0;
        for (int row = 1; row < SIZE - 1; row++) {
            sum += alone[STEPS % 2][row * SIZE + SIZE / 2];
        }
        if (*setup.sum < sum * 0.999999 || *setup.sum > sum * 1.000001) {
            Tmk_errexit("the sum is %g instead of %g\n", *setup.sum, sum);
        }
        printf("the plate of %u processes equals that of one\n", Tmk_nprocs);
    }
    Tmk_exit(0);
}
