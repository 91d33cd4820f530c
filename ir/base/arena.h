/* Memory by lifetime: objects are taken from an arena one by one and given back all at once.
 *
 * Under AddressSanitizer every object is its own malloc, so overruns inside an arena are found.
 * Running out of memory ends the process with exit code 3: a partial simulation has no use.
 * Libraries that say so by a code of their own end in ds_out_of_memory too. */
#ifndef DS_BASE_ARENA_H
#define DS_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct ds_arena_chunk ds_arena_chunk;

typedef struct ds_arena {
    ds_arena_chunk *chunks; /* newest first */
    char *at;               /* free space in the newest chunk */
    char *end;
    size_t bytes; /* sum of all sizes asked for */
} ds_arena;

/* An empty arena; owns nothing until the first allocation. */
void ds_arena_init(ds_arena *arena);
/* Gives everything back. The arena may be used again. */
void ds_arena_deinit(ds_arena *arena);

/* What an arena holds at a moment, to be gone back to: objects, and what is in them. */
typedef struct ds_arena_state {
    ds_arena then;
    char *content; /* heap: all of its chunks, one behind the other; room for `cap` bytes */
    size_t n, cap;
} ds_arena_state;
/* Pointers into the arena are as good after going back as they were at that moment; what was
 * taken since is given back, and what was written since is undone. Any number of times; a state
 * that is older than the one gone back to stays good, a younger one may only be deinitialised.
 * `out` is zero, or a state that is not needed any more, whose room is used again. O(bytes). */
void ds_arena_keep(const ds_arena *arena, ds_arena_state *out);
void ds_arena_go_back(ds_arena *arena, const ds_arena_state *to);
void ds_arena_state_deinit(ds_arena_state *state);

/* `size` zeroed bytes, aligned for any type. Never NULL. O(size). */
void *ds_arena_alloc(ds_arena *arena, size_t size);
/* `count` zeroed objects of `size` bytes each; checks the product. */
void *ds_arena_calloc(ds_arena *arena, size_t count, size_t size);
/* A copy of the string, or of its first n bytes. */
char *ds_arena_strdup(ds_arena *arena, const char *text);
char *ds_arena_strndup(ds_arena *arena, const char *text, size_t n);
/* a, then b: "%s%s", many times faster. */
char *ds_arena_join(ds_arena *arena, const char *a, const char *b);
/* a, b and the number: "%s%s%llu". */
char *ds_arena_numbered(ds_arena *arena, const char *a, const char *b, uint64_t number);
/* printf into the arena. */
char *ds_arena_printf(ds_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One message, then the process ends with exit code 3, from any thread: nothing is flushed and no
 * handler runs, for other threads are still at work. `size`: the bytes asked for; 0: not known. */
_Noreturn void ds_out_of_memory(size_t size);
/* malloc, calloc and realloc that end the process with a message instead of returning NULL. */
void *ds_xmalloc(size_t size);
void *ds_xcalloc(size_t count, size_t size);
void *ds_xrealloc(void *old, size_t size);

#define DS_NEW(arena, type) ((type *)ds_arena_alloc((arena), sizeof(type)))
#define DS_NEW_N(arena, type, count)                                                               \
    ((type *)ds_arena_calloc((arena), (size_t)(count), sizeof(type)))

/* A growing array. In an arena (DS_PUSH) outgrown copies stay until the arena ends; on the heap
 * (DS_HPUSH) it is freed with free(v.at). `v` is any struct { T *at; uint32_t n, cap; }. */
#define DS_VEC(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        uint32_t n, cap;                                                                           \
    }

#define DS_PUSH(arena, v, item)                                                                    \
    ((v)->n == (v)->cap ? (void)((v)->at = ds_vec_grow_arena((arena), (v)->at, (v)->n, &(v)->cap,  \
                                                             sizeof *(v)->at))                     \
                        : (void)0,                                                                 \
     (v)->at[(v)->n++] = (item))

#define DS_HPUSH(v, item)                                                                          \
    ((v)->n == (v)->cap ? (void)((v)->at = ds_vec_grow_heap((v)->at, &(v)->cap, sizeof *(v)->at))  \
                        : (void)0,                                                                 \
     (v)->at[(v)->n++] = (item))

void *ds_vec_grow_arena(ds_arena *arena, void *old, uint32_t n, uint32_t *cap, size_t size);
void *ds_vec_grow_heap(void *old, uint32_t *cap, size_t size);

#endif
