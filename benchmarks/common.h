/* What both programs share: xoshiro256++ (Blackman & Vigna 2019) with a stream for each path, a clock to time with. */
#ifndef CTMOMENTS_BENCH_COMMON_H
#define CTMOMENTS_BENCH_COMMON_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct { uint64_t s[4]; } stream;

static inline uint64_t splitmix64(uint64_t *x) {
    uint64_t z = (*x += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline stream start_stream(uint64_t seed, uint64_t point, uint64_t replicate) {
    uint64_t x = seed;
    x = splitmix64(&x) ^ point;
    x = splitmix64(&x) ^ replicate;
    stream r;
    for (int i = 0; i < 4; i++) r.s[i] = splitmix64(&x);
    return r;
}

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline uint64_t next_word(stream *r) {
    uint64_t *s = r->s;
    const uint64_t result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* In [0, 1): to choose a reaction. */
static inline double uniform(stream *r) { return (double)(int64_t)(next_word(r) >> 11) * 0x1p-53; }
/* In (0, 1): to take a logarithm. */
static inline double uniform_open(stream *r) { return ((double)(int64_t)(next_word(r) >> 12) + 0.5) * 0x1p-52; }

/* Seconds of processor time: one thread that never waits needs no other clock, and other work does not show in it. */
static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
