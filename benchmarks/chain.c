/* A chain of n species, X_i -> X_{i+1} at forward * X_i and back at backward * X_{i+1}, by the direct method with a
 * dependency graph: after a reaction only the rates that depend on it change, and with them the sums of their block
 * (16 rates) and of its group (8 blocks); a reaction is chosen by group, block, rate. The sums are taken afresh every
 * 1,024 events, so that rounding does not pile up.
 *
 *     chain SPECIES REPLICATES SEED
 *
 * All species start at 100; forward = 1, backward = 0.5; the last species just before t = 0.1, 0.2, ..., 1.
 * Prints one line of JSON; the time is that of the simulation alone.
 *
 * Tried on Zen 5, ns an event at 100 and 1,000 species: this 37 and 51; two levels only 37 and 103 (blocks scanned
 * without branches) or 41 and 72 (with); touched blocks summed afresh at each event 59 and 108 (vector loads of what
 * was just stored stall), 44 and 68 without vectors; groups of 16 blocks 39 and 54.
 */
#include "common.h"
#include <string.h>

enum { T = 10, BLOCK = 16, GROUP = 8, MOST = 4, REFRESH = 1024 }; /* MOST: rates that one reaction can change */

typedef struct {
    int species, reactions, blocks, groups;
    int *reactant, *product; /* of each reaction */
    double *constant;
    int *affected, *affected_count; /* [reaction][MOST]: the reactions whose rate it changes */
} network;

typedef struct {
    int64_t *x;
    double *rate, *block_sum, *group_sum; /* padded with zeros to whole blocks and groups */
} state;

typedef struct {
    int64_t sum[T], product[T][T];
    uint64_t events;
} sums;

static network make_chain(int n) {
    const int m = 2 * n - 2;
    network g = {.species = n, .reactions = m};
    g.groups = (m + BLOCK * GROUP - 1) / (BLOCK * GROUP);
    g.blocks = g.groups * GROUP;
    g.reactant = malloc(m * sizeof(int));
    g.product = malloc(m * sizeof(int));
    g.constant = malloc(m * sizeof(double));
    g.affected = calloc((size_t)m * MOST, sizeof(int));
    g.affected_count = calloc(m, sizeof(int));
    for (int r = 0; r < m; r++) { /* neighbours share a block */
        const int i = r / 2, back = r & 1;
        g.reactant[r] = i + back;
        g.product[r] = i + 1 - back;
        g.constant[r] = back ? 0.5 : 1.0;
    }
    for (int r = 0; r < m; r++)
        for (int q = r < 3 ? 0 : r - 3; q < m && q <= r + 3; q++)
            if (g.reactant[q] == g.reactant[r] || g.reactant[q] == g.product[r])
                g.affected[r * MOST + g.affected_count[r]++] = q;
    return g;
}

/* Which of `count` weights holds `left`; takes off it what lies below. Without branches: they cannot be predicted. */
static inline int choose(const double *weight, double *left, int count) {
    double sum = 0.0, below = 0.0;
    int chosen = 0;
    for (int c = 0; c < count - 1; c++) {
        sum += weight[c];
        const int past = *left >= sum;
        chosen += past;
        below = past ? sum : below;
    }
    *left -= below;
    return chosen;
}

static double refresh_sums(const network *g, state *z) {
    double total = 0.0;
    memset(z->group_sum, 0, g->groups * sizeof(double));
    for (int b = 0; b < g->blocks; b++) {
        double sum = 0.0;
        for (int j = 0; j < BLOCK; j++) sum += z->rate[b * BLOCK + j];
        z->block_sum[b] = sum;
        z->group_sum[b / GROUP] += sum;
        total += sum;
    }
    return total;
}

static void simulate_path(const network *g, state *z, stream r, sums *out) {
    int64_t y[T];
    for (int i = 0; i < g->species; i++) z->x[i] = 100;
    for (int q = 0; q < g->reactions; q++) z->rate[q] = g->constant[q] * (double)z->x[g->reactant[q]];
    double t = 0.0, next = 0.1, total = 0.0;
    int k = 0;
    uint64_t events = 0;
    for (;;) { /* the total never vanishes: the amounts are conserved */
        if (events % REFRESH == 0) total = refresh_sums(g, z);
        t -= log(uniform_open(&r)) / total;
        if (t > next) {
            do {
                y[k++] = z->x[g->species - 1];
                next = 0.1 * (k + 1);
            } while (k < T && t > next);
            if (k == T) break;
        }
        double left = uniform(&r) * total;
        int group = 0;
        while (group < g->groups - 1 && left >= z->group_sum[group]) left -= z->group_sum[group++];
        const int block = group * GROUP + choose(z->block_sum + group * GROUP, &left, GROUP);
        int q = block * BLOCK + choose(z->rate + block * BLOCK, &left, BLOCK);
        while (q >= g->reactions || z->rate[q] <= 0.0) q = q ? q - 1 : g->reactions - 1; /* rounding ran past */
        events++;
        z->x[g->reactant[q]]--;
        z->x[g->product[q]]++;
        for (int e = 0; e < g->affected_count[q]; e++) {
            const int p = g->affected[q * MOST + e];
            const double now = g->constant[p] * (double)z->x[g->reactant[p]], change = now - z->rate[p];
            z->rate[p] = now;
            z->block_sum[p / BLOCK] += change;
            z->group_sum[p / (BLOCK * GROUP)] += change;
            total += change;
        }
    }
    for (int a = 0; a < T; a++) {
        out->sum[a] += y[a];
        for (int c = 0; c <= a; c++) out->product[a][c] += y[a] * y[c];
    }
    out->events += events;
}

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[1]) < 2) return fprintf(stderr, "usage: chain SPECIES REPLICATES SEED\n"), 2;
    const network g = make_chain(atoi(argv[1]));
    const uint64_t replicates = strtoull(argv[2], 0, 10), seed = strtoull(argv[3], 0, 10);
    state z = {calloc(g.species, sizeof(int64_t)), calloc((size_t)g.blocks * BLOCK, sizeof(double)),
               calloc(g.blocks, sizeof(double)), calloc(g.groups, sizeof(double))};
    static sums out;
    const double start = seconds_now();
    for (uint64_t m = 0; m < replicates; m++) simulate_path(&g, &z, start_stream(seed, 0, m), &out);
    const double seconds = seconds_now() - start;
    uint64_t checksum = 0;
    for (int a = 0; a < T; a++) {
        checksum = checksum * 31 + (uint64_t)out.sum[a];
        for (int c = 0; c <= a; c++) checksum = checksum * 31 + (uint64_t)out.product[a][c];
    }
    printf("{\"seconds\": %.6f, \"events\": %llu, \"checksum\": \"%016llx\", \"mean\": [", seconds,
           (unsigned long long)out.events, (unsigned long long)checksum);
    for (int a = 0; a < T; a++) printf("%s%.6f", a ? ", " : "", (double)out.sum[a] / (double)replicates);
    printf("]}\n");
    return 0;
}
