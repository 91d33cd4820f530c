/* measure-cpu FOLDER [ROUNDS]: under `mpirun -n 2 --bind-to core`, calibrates and trains.
 *
 * A round runs every job of the calibration once and every configuration for a few steps, so that
 * both see the same machine: if it is slow for a minute, it is slow for both. Medians are taken
 * over the rounds. `measure-cpu --check` trains a few steps and prints the losses, which are the
 * same for any number of ranks (tests). */
#include "tools/measure/measure.h"

#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_A_ROUND 3

static int rank_of(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static int n_ranks(void) {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks;
}

static void train(ms_mlp *mlp, ms_series *series) {
    ms_mlp_step(mlp); /* its weights come into the caches that hold them */
    for (int i = 0; i < STEPS_A_ROUND; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        ms_mlp_step(mlp);
        ms_add(series, MPI_Wtime() - start);
    }
}

static bool measure(const char *folder, uint32_t rounds) {
    uint32_t n;
    ms_job *jobs = ms_jobs(&n);
    ms_series *steps = calloc(ms_n_configurations, sizeof *steps);
    ms_mlp **mlps = calloc(ms_n_configurations, sizeof(ms_mlp *));
    if (!steps || !mlps) abort();
    for (uint32_t i = 0; i < ms_n_configurations; i++)
        mlps[i] = ms_mlp_new(ms_configurations[i], rank_of(), n_ranks());
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t job = 0;
        for (uint32_t i = 0; i < ms_n_configurations; i++) {
            train(mlps[i], &steps[i]);
            uint32_t until = (uint32_t)((uint64_t)n * (i + 1) / ms_n_configurations);
            while (job < until) ms_job_run(&jobs[job++]);
        }
    }
    bool done = rank_of() != 0 ||
                (ms_write_profile(folder, jobs, n, n_ranks()) && ms_write_steps(folder, steps));
    for (uint32_t i = 0; i < ms_n_configurations; i++) {
        ms_mlp_free(mlps[i]);
        ms_free(&steps[i]);
    }
    free(mlps);
    free(steps);
    ms_jobs_free(jobs, n);
    return done;
}

static void check(void) {
    ms_mlp *mlp = ms_mlp_new((ms_configuration){3, 32, 24}, rank_of(), n_ranks());
    for (int step = 0; step < 5; step++) {
        double loss = ms_mlp_step(mlp);
        if (rank_of() == 0) printf("%.4f\n", loss);
    }
    ms_mlp_free(mlp);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    char *end = NULL;
    bool only_check = argc == 2 && strcmp(argv[1], "--check") == 0;
    unsigned long rounds = argc == 3 ? strtoul(argv[2], &end, 10) : 12;
    int code = 0;
    if (argc < 2 || argc > 3 || (end && *end) || rounds < 1 || rounds > 100000 ||
        (!only_check && argv[1][0] == '-')) {
        if (rank_of() == 0)
            fputs("usage: mpirun -n RANKS measure-cpu FOLDER [ROUNDS] | --check\n", stderr);
        code = 2;
    } else if (only_check) {
        check();
    } else if (!measure(argv[1], (uint32_t)rounds)) {
        code = 1;
    }
    MPI_Finalize();
    return code;
}
