// Ranks pass blocks around a ring and add vectors up: openmpi ROUNDS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 200000 };

static unsigned sent[WORDS], received[WORDS], sums[WORDS];

static unsigned word(int rank, int round, int at) { return (rank * 2654435761u ^ round * 40503u) + at * 97u; }

int main(int count, char **arguments) {
    int rank, ranks, rounds = count > 1 ? atoi(arguments[1]) : 10, wrong = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (int round = 0; round < rounds; round++) {
        int words = round % 3 == 0 ? 3 : round % 3 == 1 ? 5000 : WORDS;
        for (int at = 0; at < words; at++) sent[at] = word(rank, round, at);
        MPI_Sendrecv(sent, words, MPI_UNSIGNED, next, round, received, words, MPI_UNSIGNED, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < words; at++) wrong += received[at] != word(last, round, at);
        MPI_Allreduce(sent, sums, words, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < words; at++) {
            unsigned sum = 0;
            for (int other = 0; other < ranks; other++) sum += word(other, round, at);
            wrong += sums[at] != sum;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong words after %d rounds of %d ranks\n", all, rounds, ranks);
    MPI_Finalize();
    return wrong != 0;
}
