#include "ir/base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ONE_MALLOC_EACH 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONE_MALLOC_EACH 1
#endif
#endif
#ifndef ONE_MALLOC_EACH
#define ONE_MALLOC_EACH 0
#endif

struct ds_arena_chunk {
    ds_arena_chunk *next;
    size_t size;
    alignas(max_align_t) char bytes[];
};

#define FIRST_CHUNK 4096u
#define LAST_CHUNK  (1u << 20)

void ds_out_of_memory(size_t size) {
    flockfile(stderr); /* never unlocked: threads that come later wait here for the end */
    fputs("distsim: out of memory", stderr);
    if (size) fprintf(stderr, " (%zu bytes asked for)", size);
    fputc('\n', stderr);
    _exit(3);
}

void *ds_xmalloc(size_t size) {
    void *p = malloc(size ? size : 1);
    if (!p) ds_out_of_memory(size);
    return p;
}

void *ds_xcalloc(size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p) ds_out_of_memory(count * size);
    return p;
}

void *ds_xrealloc(void *old, size_t size) {
    void *p = realloc(old, size ? size : 1);
    if (!p) ds_out_of_memory(size);
    return p;
}

void ds_arena_init(ds_arena *arena) {
    *arena = (ds_arena){0};
}

void ds_arena_deinit(ds_arena *arena) {
    for (ds_arena_chunk *c = arena->chunks; c;) {
        ds_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    *arena = (ds_arena){0};
}

static ds_arena_chunk *add_chunk(ds_arena *arena, size_t size) {
    if (size > SIZE_MAX - sizeof(ds_arena_chunk)) ds_out_of_memory(size);
    ds_arena_chunk *c = ds_xmalloc(sizeof *c + size);
    c->next = arena->chunks;
    c->size = size;
    arena->chunks = c;
    return c;
}

/* Bytes of any content. */
static void *take_bytes(ds_arena *arena, size_t size) {
    arena->bytes += size;
    if (ONE_MALLOC_EACH) return add_chunk(arena, size)->bytes;
    if (size > SIZE_MAX - alignof(max_align_t)) ds_out_of_memory(size);
    size_t rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (!arena->at || rounded > (size_t)(arena->end - arena->at)) {
        /* Chunks double up to 1 MiB, so small modules stay small and large ones take few mallocs.
         */
        size_t chunk = FIRST_CHUNK;
        while (chunk < arena->bytes && chunk < LAST_CHUNK) chunk *= 2;
        if (chunk < rounded) chunk = rounded;
        arena->at = add_chunk(arena, chunk)->bytes;
        arena->end = arena->at + chunk;
    }
    void *p = arena->at;
    arena->at += rounded;
    return p;
}

void *ds_arena_alloc(ds_arena *arena, size_t size) {
    return memset(take_bytes(arena, size), 0, size);
}

void *ds_arena_calloc(ds_arena *arena, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) ds_out_of_memory(SIZE_MAX);
    return ds_arena_alloc(arena, count * size);
}

/* ---- states ---- */

/* How much of a chunk is in use, as far as that is known: chunks that are not the newest are full
 * but for some waste. (Under ASan no chunk has room left, and `at` is NULL.) */
static size_t used(const ds_arena *arena, const ds_arena_chunk *c) {
    return c == arena->chunks && arena->at ? (size_t)(arena->at - c->bytes) : c->size;
}

void ds_arena_keep(const ds_arena *arena, ds_arena_state *out) {
    out->then = *arena;
    out->n = 0;
    for (const ds_arena_chunk *c = arena->chunks; c; c = c->next) out->n += used(arena, c);
    if (out->n > out->cap || !out->content) {
        free(out->content);
        out->content = ds_xmalloc(out->cap = out->n);
    }
    char *to = out->content;
    for (const ds_arena_chunk *c = arena->chunks; c; c = c->next) {
        memcpy(to, c->bytes, used(arena, c));
        to += used(arena, c);
    }
}

void ds_arena_go_back(ds_arena *arena, const ds_arena_state *to) {
    while (arena->chunks != to->then.chunks) {
        ds_arena_chunk *c = arena->chunks;
        arena->chunks = c->next;
        free(c);
    }
    *arena = to->then;
    const char *from = to->content;
    for (ds_arena_chunk *c = arena->chunks; c; c = c->next) {
        memcpy(c->bytes, from, used(arena, c));
        from += used(arena, c);
    }
}

void ds_arena_state_deinit(ds_arena_state *state) {
    free(state->content);
    *state = (ds_arena_state){0};
}

char *ds_arena_strndup(ds_arena *arena, const char *text, size_t n) {
    char *copy = take_bytes(arena, n + 1);
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *ds_arena_strdup(ds_arena *arena, const char *text) {
    return ds_arena_strndup(arena, text, strlen(text));
}

char *ds_arena_join(ds_arena *arena, const char *a, const char *b) {
    size_t n_a = strlen(a), n_b = strlen(b);
    char *text = take_bytes(arena, n_a + n_b + 1);
    memcpy(text, a, n_a);
    memcpy(text + n_a, b, n_b + 1);
    return text;
}

char *ds_arena_numbered(ds_arena *arena, const char *a, const char *b, uint64_t number) {
    char digits[20]; /* of 2^64 */
    size_t at = sizeof digits, n_a = strlen(a), n_b = strlen(b);
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    char *text = ds_arena_alloc(arena, n_a + n_b + sizeof digits - at + 1);
    memcpy(text, a, n_a);
    memcpy(text + n_a, b, n_b);
    memcpy(text + n_a + n_b, digits + at, sizeof digits - at);
    return text;
}

char *ds_arena_printf(ds_arena *arena, const char *format, ...) {
    char small[256]; /* nearly all are: one pass */
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, format, ap);
    va_end(ap);
    if (n < 0) ds_out_of_memory(0); /* or a text of 2 GiB */
    char *text;
    if (n < (int)sizeof small) {
        text = ds_arena_strndup(arena, small, (size_t)n);
    } else {
        text = ds_arena_alloc(arena, (size_t)n + 1);
        vsnprintf(text, (size_t)n + 1, format, again);
    }
    va_end(again);
    return text;
}

static uint32_t next_cap(uint32_t cap) {
    if (cap > UINT32_MAX / 2) ds_out_of_memory(SIZE_MAX);
    return cap ? cap * 2 : 4;
}

void *ds_vec_grow_arena(ds_arena *arena, void *old, uint32_t n, uint32_t *cap, size_t size) {
    uint32_t wanted = next_cap(*cap);
    if (size && wanted > SIZE_MAX / size) ds_out_of_memory(SIZE_MAX);
    char *fresh = take_bytes(arena, wanted * size);
    if (n) memcpy(fresh, old, n * size);
    memset(fresh + n * size, 0, (wanted - n) * size);
    *cap = wanted;
    return fresh;
}

void *ds_vec_grow_heap(void *old, uint32_t *cap, size_t size) {
    uint32_t wanted = next_cap(*cap);
    void *fresh = ds_xrealloc(old, wanted * size);
    *cap = wanted;
    return fresh;
}
