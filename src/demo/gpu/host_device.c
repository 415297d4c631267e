/*
 * A device for tests: kernels.cu as C on the host, one thread after the other, and products of matrices stored column by
 * column, as cuBLASLt takes them. It is told what to do on standard input and answers reads on standard output.
 * STORAGE and KERNELS stand for what the test puts here.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
#define KERNEL static void
#define INLINE static inline
static u64 current_thread;
#define THREAD current_thread

INLINE u32 bits_of(float value) { u32 bits; memcpy(&bits, &value, 4); return bits; }
INLINE float with_bits(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
INLINE float half_to_float(u16 half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                 : exponent == 0 ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(fraction + 1024), exponent - 25);
    return half & 0x8000 ? -size : size;
}
INLINE u16 float_to_half(float value)
{
    u16 sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    int exponent;
    if (isnan(value))
        return 0x7e00;
    if (size >= 65520.0f)
        return sign | 0x7c00;
    if (size < 6.103515625e-5f)
        return sign | (u16)nearbyintf(ldexpf(size, 24));
    frexpf(size, &exponent);
    /* A fraction that rounds up to 2048 carries into the exponent, as it should. */
    return sign | (u16)(((exponent + 14) << 10) + (int)nearbyintf(ldexpf(size, 11 - exponent)) - 1024);
}

STORAGE
KERNELS

#define MOST 4096
static u8 *memories[MOST];
static u64 lengths[MOST], memory_count;

static void fail(const char *what)
{
    fprintf(stderr, "host device: %s\n", what);
    exit(3);
}

static void take(void *place, size_t bytes)
{
    if (fread(place, 1, bytes, stdin) != bytes)
        exit(0);
}

static u64 number(void)
{
    u64 value;
    take(&value, 8);
    return value;
}

static u8 *memory(u64 id)
{
    if (id >= memory_count)
        fail("no such memory");
    return memories[id];
}

/* The arguments of a launch: 'm' memory, 'i' u32, 'l' u64, 'f' float. */
static char kinds[16];
static u64 values[16], count, next;

static u64 argument(char kind)
{
    if (next >= count || kinds[next] != kind)
        fail("an argument of another kind than the kernel declares");
    return values[next++];
}
#define P ((void *)memory(argument('m')))
#define I ((u32)argument('i'))
#define L (argument('l'))
#define F (with_bits((u32)argument('f')))

/* Arguments of a C call are evaluated in any order, so each is taken into a variable first. */
static void run_thread(u64 kernel)
{
    next = 0;
    switch (kernel) {
    case 0: { void *a = P, *b = P; u64 c = L; u32 d = I, e = I, f = I, g = I; gather_patches(a, b, c, d, e, f, g); break; }
    case 1: { void *a = P, *b = P; u64 c = L; u32 d = I; spread_biases(a, b, c, d); break; }
    case 2: { void *a = P; u64 c = L; rectify(a, c); break; }
    case 3: { void *a = P, *b = P; u64 c = L; mask_rectified(a, b, c); break; }
    case 4: {
        void *a = P, *b = P, *c = P, *d = P; u64 e = L; u32 f = I; float g = F;
        cross_entropy(a, b, c, d, e, f, g);
        break;
    }
    case 5: { void *a = P, *b = P; u64 c = L; u32 d = I, e = I; sum_rows_partly(a, b, c, d, e); break; }
    case 6: { void *a = P, *b = P; u32 c = I, d = I; sum_parts(a, b, c, d); break; }
    case 7: { void *a = P, *b = P, *c = P; u64 d = L; float e = F, f = F, g = F; descend(a, b, c, d, e, f, g); break; }
    default: fail("no such kernel");
    }
    if (next != count)
        fail("more arguments than the kernel declares");
}

static void launch(void)
{
    u64 kernel = number(), threads = number();
    count = number();
    for (u64 index = 0; index < count; index++) {
        kinds[index] = (char)number();
        values[index] = number();
    }
    /* As many as whole blocks of a GPU have. */
    threads = (threads + 255) / 256 * 256;
    for (current_thread = 0; current_thread < threads; current_thread++)
        run_thread(kernel);
}

/* The number at a row and column of op(matrix), which is stored column by column. */
static float at(const STORED *matrix, u64 leading, int transposed, u64 row, u64 column)
{
    return LOAD(transposed ? matrix[row * leading + column] : matrix[column * leading + row]);
}

/* c = op(a) op(b) + beta c, where op(a) has m rows and k columns, op(b) k rows and n columns. */
static void multiply(void)
{
    u64 m = number(), n = number(), k = number(), transposed_a = number(), transposed_b = number(), beta = number();
    u64 ids[3] = { number(), number(), number() };
    u64 leading_a = transposed_a ? k : m, leading_b = transposed_b ? n : k;
    const STORED *a = (void *)memory(ids[0]), *b = (void *)memory(ids[1]);
    STORED *c = (void *)memory(ids[2]);
    if (lengths[ids[0]] != m * k * sizeof(STORED) || lengths[ids[1]] != k * n * sizeof(STORED)
        || lengths[ids[2]] != m * n * sizeof(STORED))
        fail("a matrix of another size than its shape");
    for (u64 column = 0; column < n; column++)
        for (u64 row = 0; row < m; row++) {
            float sum = beta ? LOAD(c[column * m + row]) : 0.0f;
            for (u64 inner = 0; inner < k; inner++)
                sum += at(a, leading_a, transposed_a, row, inner) * at(b, leading_b, transposed_b, inner, column);
            c[column * m + row] = STORE(sum);
        }
}

int main(void)
{
    for (;;) {
        u64 order = number();
        if (order == 'a') {
            if (memory_count == MOST)
                fail("too many memories");
            lengths[memory_count] = number();
            memories[memory_count] = calloc(1, lengths[memory_count]);
            memory_count++;
        } else if (order == 'w') {
            u64 id = number(), bytes = number();
            if (bytes > lengths[id])
                fail("a write beyond the end");
            take(memory(id), bytes);
        } else if (order == 'r') {
            u64 id = number(), bytes = number();
            if (bytes > lengths[id])
                fail("a read beyond the end");
            fwrite(memory(id), 1, bytes, stdout);
            fflush(stdout);
        } else if (order == 'k')
            launch();
        else if (order == 'm')
            multiply();
        else
            fail("no such order");
    }
}
