/* The SIR epidemic by Gillespie's direct method, one path after another: what a careful C programmer would write.
 *
 *     sir REPLICATES SEED < points        each line of `points`: alpha beta
 *
 * S, I, R = 763, 3, 0; infection at beta*S*I, recovery at alpha*I; I just before t = 1..13. Each path leaves its sums
 * and its cross products, as integers. Prints one line of JSON; the time is that of the simulation alone.
 */
#include "common.h"

enum { T = 13 };

typedef struct {
    int64_t sum[T], product[T][T]; /* lower triangle */
    uint64_t events;
} sums;

static void simulate_path(double alpha, double beta, stream r, sums *out) {
    int64_t s = 763, i = 3;
    int64_t y[T];
    double t = 0.0, next = 1.0;
    int k = 0;
    uint64_t events = 0;
    while (i > 0) {
        const double infection = beta * (double)s * (double)i;
        const double total = infection + alpha * (double)i;
        t -= log(uniform_open(&r)) / total;
        if (t > next) { /* the state before this jump is the output of every time passed */
            do {
                y[k++] = i;
                next += 1.0;
            } while (k < T && t > next);
            if (k == T) break;
        }
        events++;
        /* no branch: it would be mispredicted every other time (5 % of the whole) */
        const int64_t infects = uniform(&r) * total < infection;
        s -= infects;
        i += 2 * infects - 1;
    }
    while (k < T) y[k++] = i;
    for (int a = 0; a < T; a++) {
        out->sum[a] += y[a];
        for (int b = 0; b <= a; b++) out->product[a][b] += y[a] * y[b];
    }
    out->events += events;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: sir REPLICATES SEED < points\n"), 2;
    const uint64_t replicates = strtoull(argv[1], 0, 10), seed = strtoull(argv[2], 0, 10);
    static double theta[100000][2];
    size_t points = 0;
    while (points < 100000 && scanf("%lf %lf", &theta[points][0], &theta[points][1]) == 2) points++;
    sums *out = calloc(points, sizeof *out);
    const double start = seconds_now();
    for (size_t p = 0; p < points; p++)
        for (uint64_t m = 0; m < replicates; m++)
            simulate_path(theta[p][0], theta[p][1], start_stream(seed, p, m), &out[p]);
    const double seconds = seconds_now() - start;
    uint64_t events = 0, checksum = 0;
    for (size_t p = 0; p < points; p++) {
        events += out[p].events;
        for (int a = 0; a < T; a++) {
            checksum = checksum * 31 + (uint64_t)out[p].sum[a];
            for (int b = 0; b <= a; b++) checksum = checksum * 31 + (uint64_t)out[p].product[a][b];
        }
    }
    printf("{\"seconds\": %.6f, \"events\": %llu, \"checksum\": \"%016llx\", \"mean\": [", seconds,
           (unsigned long long)events, (unsigned long long)checksum);
    for (int a = 0; a < T; a++) printf("%s%.6f", a ? ", " : "", (double)out[0].sum[a] / (double)replicates);
    printf("]}\n");
    return 0;
}
