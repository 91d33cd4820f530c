#include "ir/base/arena.h"

#include <criterion/criterion.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

Test(arena, objects_are_zeroed_aligned_and_apart) {
    ds_arena arena;
    ds_arena_init(&arena);
    enum { N = 2000 };
    unsigned char *at[N];
    size_t sum = 0;
    for (size_t i = 0; i < N; i++) {
        size_t size = i % 37;
        at[i] = ds_arena_alloc(&arena, size);
        sum += size;
        cr_assert_eq((uintptr_t)at[i] % alignof(max_align_t), 0);
        for (size_t j = 0; j < size; j++) cr_assert_eq(at[i][j], 0);
        memset(at[i], (int)(i & 0xff), size);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < i % 37; j++) cr_assert_eq(at[i][j], i & 0xff);
    cr_assert_eq(arena.bytes, sum);
    ds_arena_deinit(&arena);
}

Test(arena, takes_objects_larger_than_a_chunk) {
    ds_arena arena;
    ds_arena_init(&arena);
    char *small = ds_arena_alloc(&arena, 10);
    char *large = ds_arena_alloc(&arena, 5u << 20);
    large[0] = large[(5u << 20) - 1] = 1;
    char *after = ds_arena_alloc(&arena, 10);
    cr_assert(small && after && small != after);
    ds_arena_deinit(&arena);
    cr_assert_null(arena.chunks);
    cr_assert_not_null(ds_arena_alloc(&arena, 1)); /* usable again */
    ds_arena_deinit(&arena);
}

Test(arena, strings) {
    ds_arena arena;
    ds_arena_init(&arena);
    cr_assert_str_eq(ds_arena_strdup(&arena, ""), "");
    cr_assert_str_eq(ds_arena_strndup(&arena, "matmul", 3), "mat");
    cr_assert_str_eq(ds_arena_printf(&arena, "%s=%d", "dp", 4), "dp=4");
    char wide[3000];
    memset(wide, 'x', sizeof wide);
    wide[sizeof wide - 1] = '\0';
    cr_assert_str_eq(ds_arena_printf(&arena, "%s", wide), wide);
    ds_arena_deinit(&arena);
}

Test(arena, arrays_grow_and_keep_their_items) {
    ds_arena arena;
    ds_arena_init(&arena);
    DS_VEC(uint32_t) in_arena = {0};
    DS_VEC(uint32_t) on_heap = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        DS_PUSH(&arena, &in_arena, i * i);
        DS_HPUSH(&on_heap, i * i);
    }
    cr_assert_eq(in_arena.n, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        cr_assert_eq(in_arena.at[i], i * i);
        cr_assert_eq(on_heap.at[i], i * i);
    }
    free(on_heap.at);
    ds_arena_deinit(&arena);
}

Test(arena, running_out_of_memory_exits_with_3, .exit_code = 3) {
    freopen("/dev/null", "w", stderr);
    ds_arena arena;
    ds_arena_init(&arena);
    ds_arena_calloc(&arena, SIZE_MAX / 2, 4); /* the product overflows */
}
