// The five functions of C++ among the recorded spaces; a word of a config arrives as its place in its list.
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

// Rows of a tile; `out` is a buffer of the tile where the results are streamed past the caches afterwards.
template <int ROWS>
static void star(const float* x, float* __restrict to, int width, int pitch, int columns) {
#pragma GCC ivdep
    for (int j = 0; j < columns; j++)
#pragma GCC unroll 8
        for (int u = 0; u < ROWS; u++) {
            const float* at = x + long(u) * width + j;
            to[long(u) * pitch + j] = 0.5f * at[0] + 0.1f * (at[-1] + at[1] + at[-width] + at[width]) +
                                      0.025f * (at[-2] + at[2] + at[-2 * width] + at[2 * width]);
        }
}

extern "C" void stencil(const float* x, float* out, int height, int width, int tile_y, int tile_x, int unroll,
                        int threads, int stream) {
    auto body = unroll == 1 ? star<1> : unroll == 2 ? star<2> : star<6>;
#pragma omp parallel for collapse(2) num_threads(threads) schedule(dynamic)
    for (int top = 2; top < height - 2; top += tile_y)
        for (int left = 4; left < width - 4; left += tile_x) {
            alignas(64) float kept[6][3072];
            int bottom = std::min(top + tile_y, height - 2), columns = std::min(tile_x, width - 4 - left);
            for (int i = top, rows; i < bottom; i += rows) {
                rows = i + unroll <= bottom ? unroll : 1;
                long at = long(i) * width + left;
                (rows == 1 ? star<1> : body)(x + at, stream ? kept[0] : out + at, width, stream ? 3072 : width, columns);
                for (int u = 0; stream && u < rows; u++)
                    for (int j = 0; j < columns; j += 4)
                        _mm_stream_ps(out + at + long(u) * width + j, _mm_load_ps(kept[u] + j));
            }
        }
}

template <int ROWS>
static void tile(const float* a, const float* b, float* __restrict c, int pitch_b, int n, int rows, int columns, int inner) {
    for (int i = 0; i + ROWS <= rows; i += ROWS)
        for (int l = 0; l < inner; l++) {
            const float* factor = a + i * n + l;
            const float* row = b + l * pitch_b;
#pragma GCC ivdep
            for (int j = 0; j < columns; j++)
#pragma GCC unroll 8
                for (int u = 0; u < ROWS; u++) c[(i + u) * n + j] += factor[u * n] * row[j];
        }
}

// C = A B of n by n numbers; n is a multiple of every tile.
extern "C" void product(const float* a, const float* b, float* c, int n, int tile_i, int tile_j, int tile_k, int order,
                        int unroll, int pack, int threads) {
    auto body = unroll == 1 ? tile<1> : unroll == 2 ? tile<2> : unroll == 4 ? tile<4> : tile<8>;
    auto at = [=](int i, int j, int k) {
        static thread_local std::vector<float> packed;
        const float* part = b + k * n + j;
        if (pack) {
            packed.resize(tile_k * tile_j);
            for (int l = 0; l < tile_k; l++) std::copy_n(part + l * n, tile_j, packed.data() + l * tile_j);
        }
        body(a + i * n + k, pack ? packed.data() : part, c + i * n + j, pack ? tile_j : n, n, tile_i, tile_j, tile_k);
    };
    std::memset(c, 0, sizeof(float) * n * n);
    for (int outer = 0; outer < (order == 2 ? n : 1); outer += tile_k)
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int i = 0; i < n; i += tile_i) {
            if (order == 0)
                for (int j = 0; j < n; j += tile_j)
                    for (int k = 0; k < n; k += tile_k) at(i, j, k);
            else if (order == 1)
                for (int k = 0; k < n; k += tile_k)
                    for (int j = 0; j < n; j += tile_j) at(i, j, k);
            else
                for (int j = 0; j < n; j += tile_j) at(i, j, outer);
        }
}

// Counts of 16-bit numbers below `bins`: one table with atomic additions, or `copies` tables for each thread.
extern "C" void histogram(const uint16_t* x, int* out, int count, int bins, int shared, int copies, int interleaved,
                          int wide, int chunk, int threads) {
    std::memset(out, 0, sizeof(int) * bins);
#pragma omp parallel num_threads(threads)
    {
        std::vector<int> own(shared ? 0 : bins * copies);
        int step = interleaved ? copies : 1, apart = interleaved ? 1 : bins;
#pragma omp for schedule(dynamic)
        for (int first = 0; first < count; first += chunk) {
            int last = std::min(first + chunk, count);
            if (shared)
                for (int i = first; i < last; i++) {
#pragma omp atomic
                    out[x[i]]++;
                }
            else if (wide)
                for (int i = first; i < last; i += 4) {
                    uint64_t four;
                    std::memcpy(&four, x + i, 8);
                    for (int u = 0; u < 4; u++) own[(four >> 16 * u & 65535) * step + (u & (copies - 1)) * apart]++;
                }
            else
                for (int i = first; i < last; i++) own[x[i] * step + (i & (copies - 1)) * apart]++;
        }
        if (!shared)
#pragma omp critical
            for (int bin = 0; bin < bins; bin++)
                for (int copy = 0; copy < copies; copy++) out[bin] += own[bin * step + copy * apart];
    }
}

template <int COLUMNS>
static void row_sums(const int* begins, const int* places, const float* values, const float* x, float* out, int row,
                     int width) {
    for (int first = 0; first < width; first += COLUMNS) {
        float sums[COLUMNS] = {};
        for (int at = begins[row]; at < begins[row + 1]; at++)
            for (int j = 0; j < COLUMNS; j++) sums[j] += values[at] * x[long(places[at]) * width + first + j];
        std::copy_n(sums, COLUMNS, out + long(row) * width + first);
    }
}

// Y = S X of a sparse S and a dense X of `width` columns, in the order of rows that is given.
extern "C" void sparse(const int* begins, const int* places, const float* values, const float* x, const int* order,
                       float* out, int rows, int width, int schedule, int chunk, int columns, int by_length, int threads) {
    auto body = columns == 1 ? row_sums<1> : columns == 4 ? row_sums<4> : columns == 8 ? row_sums<8> : row_sums<16>;
    omp_set_schedule(schedule == 0 ? omp_sched_static : schedule == 1 ? omp_sched_dynamic : omp_sched_guided, chunk);
#pragma omp parallel for num_threads(threads) schedule(runtime)
    for (int i = 0; i < rows; i++) body(begins, places, values, x, out, by_length ? order[i] : i, width);
}

static inline float power(float x) {  // e^x
    float t = x * 1.44269504f, whole = std::floor(t), part = t - whole;
    int bits = (int(whole) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, 4);
    return scale * (0.99999994f + part * (0.69315308f + part * (0.24015361f + part * (0.05582631f +
                    part * (0.00898934f + part * 0.00187758f)))));
}

template <typename T, bool QUICK>
static inline T cumulative(T d) {  // of the normal distribution, by Abramowitz and Stegun 26.2.17
    T k = 1 / (1 + T(0.2316419) * std::fabs(d)), tail = QUICK ? T(power(float(-d * d / 2))) : std::exp(-d * d / 2);
    tail *= T(0.39894228) * k * (T(0.31938153) + k * (T(-0.356563782) + k * (T(1.781477937) +
            k * (T(-1.821255978) + k * T(1.330274429)))));
    return d > 0 ? 1 - tail : tail;
}

template <typename T, bool QUICK, int WIDTH>
static void prices(const float* spot, const float* strike, const float* years, float* out, int step, int first, int last) {
    const T rate = T(0.02), volatility = T(0.3);
    T moneyness[WIDTH], root[WIDTH];
    for (int i = first; i + WIDTH <= last; i += WIDTH) {
        for (int w = 0; w < WIDTH; w++) moneyness[w] = std::log(T(spot[(i + w) * step]) / T(strike[(i + w) * step]));
        for (int w = 0; w < WIDTH; w++) root[w] = volatility * std::sqrt(T(years[(i + w) * step]));
        for (int w = 0; w < WIDTH; w++) {
            T time = T(years[(i + w) * step]);
            T d = (moneyness[w] + (rate + volatility * volatility / 2) * time) / root[w];
            T discount = QUICK ? T(power(float(-rate * time))) : std::exp(-rate * time);
            out[i + w] = T(spot[(i + w) * step]) * cumulative<T, QUICK>(d) -
                         T(strike[(i + w) * step]) * discount * cumulative<T, QUICK>(d - root[w]);
        }
    }
}

template <typename T, bool QUICK>
static auto by_width(int width) {
    return width == 1 ? prices<T, QUICK, 1> : width == 4 ? prices<T, QUICK, 4> : width == 8 ? prices<T, QUICK, 8>
           : width == 16 ? prices<T, QUICK, 16> : prices<T, QUICK, 64>;
}

// European calls; three arrays, or one of triples. Every chunk and `count` are multiples of every width.
extern "C" void black_scholes(const float* columns, const float* triples, float* out, int count, int width, int precision,
                              int packed, int chunk, int threads) {
    auto body = precision == 0 ? by_width<float, false>(width) : precision == 1 ? by_width<float, true>(width)
                                                                                : by_width<double, false>(width);
    const float* first = packed ? triples : columns;
    int apart = packed ? 1 : count;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int at = 0; at < count; at += chunk) {
        const float* from = first + (packed ? 3 * at : at);
        body(from, from + apart, from + 2 * apart, out + at, packed ? 3 : 1, 0, std::min(chunk, count - at));
    }
}
